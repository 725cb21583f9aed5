//! What a connection, or all code of one key, may use, and what it uses.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ifunc_abi::frame::Limits;
use ifunc_abi::image::ImageFlags;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_abi::{Counted, ImageId};
use ifunc_exec::InstalledImage;

/// What a connection may use, or, in a [`Grant`](crate::Grant), all code of one key or of unsigned sources together.
///
/// ```
/// let quotas = ifunc_rt::Quotas::default().images(64).payload_bytes(1 << 20);
/// assert_eq!(quotas.code_bytes, 64 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Largest image in bytes, with the slices for other machines that it brings along if it may travel on. Default 16 MiB.
    pub image_bytes: usize,
    /// Memory of the images that are bound, in bytes. Default 64 MiB. A pinned image counts for as long as its connection lives,
    /// and among those of a key for as long as the target lives; all pinned images together may take half of the
    /// [code cache](crate::TargetBuilder::code_cache). The slices for other machines that an image brings along count until its handles
    /// are released and what it sent with them has left.
    pub code_bytes: usize,
    /// Images that are bound at a time. Default 1024.
    pub images: usize,
    /// Largest payload in bytes. Default 64 MiB.
    pub payload_bytes: usize,
    /// Largest answer in bytes. Default 64 MiB. A source may take less:
    /// [`SourceOptions::max_answer`](crate::SourceOptions::max_answer). An answer of more than 64 KiB, or than a frame, is written
    /// to memory of the target's that counts among the [unfinished bodies](crate::TargetBuilder::unfinished_bodies) until it is
    /// sent; one larger than a frame travels in fragments. An answer that another node sends on has at most a quarter of the
    /// [outbox](crate::TargetBuilder::outbox).
    pub answer_bytes: usize,
    /// Invocations in flight. Of a connection: calls of ifuncs that travel which wait, on this node, for their answers from other
    /// nodes. In a grant: invocations that run at the same time, on all threads. Default: no limit but that of
    /// [`credits`](crate::TargetBuilder::credits), which bound the frames that were sent and not received.
    pub in_flight: usize,
    /// Images that may be installed per second; as many may come at once after a second without any. Default: no limit.
    pub installs_per_second: u32,
    /// In a grant or an [`Allowance`](crate::Allowance): invocations that may begin per second; as many may begin at once after a second
    /// without any. Default: no limit. Nothing counts those of a connection.
    pub invocations_per_second: u32,
    /// In a grant or an allowance: how long an invocation may run, in milliseconds, at least one. It then fails as at the target's
    /// [`max_run_time`](crate::Policy::max_run_time), which the policy has to have, and which holds as well. Default: no limit.
    pub run_time: Duration,
    /// In a grant or an allowance: how long invocations may run in each second, on all threads together; as much may be used at once after a second
    /// without any. The time of an invocation counts when it has ended, with what it waited for: what is used beyond the quota is
    /// missing later. Default: no limit.
    pub run_time_per_second: Duration,
}

macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[must_use]
        pub const fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            image_bytes: 16 << 20,
            code_bytes: 64 << 20,
            images: 1024,
            payload_bytes: 64 << 20,
            answer_bytes: 64 << 20,
            ..Self::UNLIMITED
        }
    }
}

impl Quotas {
    /// No limit at all.
    pub const UNLIMITED: Self = Self {
        image_bytes: usize::MAX,
        code_bytes: usize::MAX,
        images: usize::MAX,
        payload_bytes: usize::MAX,
        answer_bytes: usize::MAX,
        in_flight: usize::MAX,
        installs_per_second: u32::MAX,
        invocations_per_second: u32::MAX,
        run_time: Duration::MAX,
        run_time_per_second: Duration::MAX,
    };

    setters!(
        image_bytes: usize,
        code_bytes: usize,
        images: usize,
        payload_bytes: usize,
        answer_bytes: usize,
        in_flight: usize,
        installs_per_second: u32,
        invocations_per_second: u32,
        run_time: Duration,
        run_time_per_second: Duration,
    );

    /// What a target states to each source.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_payload: self.payload_bytes as u64,
            max_image: self.image_bytes as u64,
            max_answer: self.answer_bytes as u64,
        }
    }

    /// Whether invocations have to be counted or measured.
    pub(super) fn limits_invocations(&self) -> bool {
        let unlimited = Self::UNLIMITED;
        let invocations = |quotas: &Self| {
            (
                quotas.payload_bytes,
                quotas.answer_bytes,
                quotas.in_flight,
                quotas.invocations_per_second,
                quotas.run_time,
                quotas.run_time_per_second,
            )
        };
        invocations(self) != invocations(&unlimited)
    }
}

/// The quotas of a connection or of a key, and what it uses of them.
#[derive(Debug)]
pub(crate) struct Meter {
    /// `this connection`, `the key builds`.
    whose: String,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    quotas: Quotas,
    code_bytes: usize,
    images: usize,
    in_flight: usize,
    /// Pinned images count once, and as long as the meter lives.
    pinned: BTreeSet<ImageId>,
    installs: Rate,
    invocations: Rate,
    /// In seconds.
    run_time: Rate,
}

/// What may be used per second.
#[derive(Debug)]
struct Rate {
    /// How much may follow at once, and since when more is added. Less than 0: so much was used too early.
    left: f64,
    since: Option<Instant>,
}

impl Rate {
    fn new(per_second: f64) -> Self {
        Self {
            left: per_second,
            since: None,
        }
    }

    /// How much may follow at once.
    fn left(&mut self, per_second: f64, now: Instant) -> f64 {
        let since = self.since.replace(now).unwrap_or(now);
        let more = now.saturating_duration_since(since).as_secs_f64() * per_second;
        self.left = (self.left + more).min(per_second);
        self.left
    }

    /// Takes one, if one is left.
    fn take(&mut self, per_second: u32, now: Instant) -> bool {
        let has_one = self.left(per_second.into(), now) >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }

    /// Not more may come at once than the new rate says.
    fn limit(&mut self, per_second: f64) {
        self.left = self.left.min(per_second);
    }
}

/// What a bound image counts, or what accompanies one, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    meter: Arc<Meter>,
    code_bytes: usize,
    images: usize,
}

impl Meter {
    pub(crate) fn new(whose: impl Into<String>, quotas: Quotas) -> Arc<Self> {
        Arc::new(Self {
            whose: whose.into(),
            used: Mutex::new(Used {
                quotas,
                code_bytes: 0,
                images: 0,
                in_flight: 0,
                pinned: BTreeSet::new(),
                installs: Rate::new(quotas.installs_per_second.into()),
                invocations: Rate::new(quotas.invocations_per_second.into()),
                run_time: Rate::new(quotas.run_time_per_second.as_secs_f64()),
            }),
        })
    }

    /// Whose it is, for messages.
    pub(super) fn whose(&self) -> &str {
        &self.whose
    }

    pub(crate) fn quotas(&self) -> Quotas {
        self.used().quotas
    }

    /// Replaces the quotas. What is used stays used.
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        let mut used = self.used();
        used.installs.limit(quotas.installs_per_second.into());
        used.invocations.limit(quotas.invocations_per_second.into());
        used.run_time.limit(quotas.run_time_per_second.as_secs_f64());
        used.quotas = quotas;
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exceeded(&self, quota: &str, what: impl std::fmt::Display) -> Refusal {
        let whose = &self.whose;
        Refusal::new(
            Rejection::Quota,
            format!("{whose} {what}; help: `{quota}` of the quotas in the target's policy"),
        )
    }

    /// Counts an attempt to install an image that has `len` bytes with what accompanies it.
    ///
    /// # Errors
    /// There were too many in the last second, or the image is too large, or there is no room for it.
    pub(crate) fn attempt(&self, len: usize, now: Instant) -> Result<(), Refusal> {
        let Quotas {
            image_bytes,
            installs_per_second: rate,
            ..
        } = self.quotas();
        if rate != u32::MAX && !self.used().installs.take(rate, now) {
            let what = format!(
                "may install {} per second, and tried to install more",
                Counted(rate, "image")
            );
            return Err(self.exceeded("installs_per_second", what));
        }
        if len > image_bytes {
            let what = format!(
                "may install images of {image_bytes} bytes, with the slices that accompany them, and this one has {len}"
            );
            return Err(self.exceeded("image_bytes", what));
        }
        self.admits(&self.used(), len)
    }

    /// Whether there is room for another image of so many bytes.
    fn admits(&self, used: &Used, bytes: usize) -> Result<(), Refusal> {
        let images = used.quotas.images;
        if used.images >= images {
            let what = format!(
                "may have {} bound at a time; help: release handles",
                Counted(images, "image")
            );
            return Err(self.exceeded("images", what));
        }
        self.admits_bytes(used, bytes)
    }

    fn admits_bytes(&self, used: &Used, bytes: usize) -> Result<(), Refusal> {
        let code_bytes = used.quotas.code_bytes;
        if used.code_bytes.saturating_add(bytes) > code_bytes {
            let bound = used.code_bytes;
            let what = format!(
                "may have images of {code_bytes} bytes in memory, has {bound}, and needs {bytes} more; help: release handles"
            );
            return Err(self.exceeded("code_bytes", what));
        }
        Ok(())
    }

    /// Counts an image that was installed. `None`: it counts already, or for as long as this meter lives.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn charge(self: &Arc<Self>, image: &InstalledImage) -> Result<Option<Charge>, Refusal> {
        let mut used = self.used();
        let is_pinned = image.flags.contains(ImageFlags::PINNED);
        if is_pinned && used.pinned.contains(&image.id) {
            return Ok(None);
        }
        let code_bytes = image.footprint();
        self.admits(&used, code_bytes)?;
        used.code_bytes += code_bytes;
        used.images += 1;
        if is_pinned {
            used.pinned.insert(image.id);
            return Ok(None);
        }
        drop(used);
        Ok(Some(Charge {
            meter: Arc::clone(self),
            code_bytes,
            images: 1,
        }))
    }

    /// Counts what accompanies an image, each time that it is kept.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn charge_companions(self: &Arc<Self>, bytes: usize) -> Result<Charge, Refusal> {
        let mut used = self.used();
        self.admits_bytes(&used, bytes)?;
        used.code_bytes += bytes;
        drop(used);
        Ok(Charge {
            meter: Arc::clone(self),
            code_bytes: bytes,
            images: 0,
        })
    }

    /// Counts an invocation that begins. Returns how long it may run, and since when its time counts; `None`: its time does not.
    ///
    /// # Errors
    /// As many as may run have begun, or as many as may begin in a second, or they have run for as long as they may.
    pub(crate) fn begin(&self) -> Result<(Duration, Option<Instant>), Refusal> {
        let mut used = self.used();
        let limit = used.quotas.in_flight;
        if used.in_flight >= limit {
            let what = format!("may have {} in flight", Counted(limit, "invocation"));
            return Err(self.exceeded("in_flight", what));
        }
        let rate = used.quotas.invocations_per_second;
        if rate != u32::MAX && !used.invocations.take(rate, Instant::now()) {
            let what = format!(
                "may begin {} per second, and more were sent",
                Counted(rate, "invocation")
            );
            return Err(self.exceeded("invocations_per_second", what));
        }
        let share = used.quotas.run_time_per_second;
        let began = (share != Duration::MAX).then(Instant::now);
        if began.is_some_and(|now| used.run_time.left(share.as_secs_f64(), now) <= 0.0) {
            let what = format!("may run for {share:?} in each second, and has used that");
            return Err(self.exceeded("run_time_per_second", what));
        }
        used.in_flight += 1;
        Ok((used.quotas.run_time, began))
    }

    /// Whether `has_calls`, which tells whether there are so many, admits one more.
    ///
    /// # Errors
    /// As many as there may be are in flight.
    pub(crate) fn admits_call(&self, has_calls: impl FnOnce(usize) -> bool) -> Result<(), Refusal> {
        let limit = self.quotas().in_flight;
        if limit == usize::MAX || !has_calls(limit) {
            return Ok(());
        }
        let what = format!("may have {} in flight", Counted(limit, "invocation"));
        Err(self.exceeded("in_flight", what))
    }

    /// Invocations that have begun and not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.used().in_flight
    }

    /// An invocation has ended whose time counts since `began`.
    pub(crate) fn end(&self, began: Option<Instant>) {
        let took = began.map(|began| began.elapsed().as_secs_f64());
        let mut used = self.used();
        used.in_flight -= 1;
        used.run_time.left -= took.unwrap_or(0.0);
    }

    /// Why an invocation with a payload of `len` bytes does not run.
    pub(crate) fn admits_payload(&self, len: usize) -> Result<(), Refusal> {
        let limit = self.quotas().payload_bytes;
        if len <= limit {
            return Ok(());
        }
        let what = format!("may send payloads of {limit} bytes, and this one has {len}");
        Err(self.exceeded("payload_bytes", what))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut used = self.meter.used();
        used.code_bytes -= self.code_bytes;
        used.images -= self.images;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn installs_come_back_with_time() {
        let meter = Meter::new("this connection", Quotas::UNLIMITED.installs_per_second(4));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let admitted = |at, tries| (0..tries).filter(|_| meter.attempt(1, after(at)).is_ok()).count();
        assert_eq!(admitted(0, 10), 4);
        assert_eq!(admitted(240, 10), 0);
        assert_eq!(admitted(510, 10), 2);
        assert_eq!(admitted(60_000, 10), 4);
        let why = meter.attempt(1, after(60_000)).unwrap_err();
        assert_eq!(why.reason, Rejection::Quota);
        assert!(
            why.detail
                .contains("this connection may install 4 images per second"),
            "{}",
            why.detail
        );
        assert!(why.detail.contains("installs_per_second"), "{}", why.detail);
    }

    #[test]
    fn no_attempt_exceeds_a_size() {
        let meter = Meter::new("the key `a`", Quotas::UNLIMITED.image_bytes(10).code_bytes(5));
        let now = Instant::now();
        let why = |len| meter.attempt(len, now).unwrap_err().detail;
        assert!(why(11).contains("`image_bytes`") && why(10).contains("`code_bytes`"));
        assert!(meter.attempt(5, now).is_ok());
        assert!(meter.admits_payload(usize::MAX).is_ok());
        let none = Meter::new("the key `a`", Quotas::UNLIMITED.images(0));
        assert!(
            none.attempt(0, now)
                .unwrap_err()
                .detail
                .contains("the key `a` may have 0 images")
        );
    }

    #[test]
    fn what_has_begun_and_not_ended_is_in_flight() {
        let meter = Meter::new("x", Quotas::UNLIMITED.in_flight(2).payload_bytes(3));
        assert!(meter.begin().is_ok() && meter.begin().is_ok());
        assert!(meter.begin().unwrap_err().detail.contains("`in_flight`"));
        meter.end(None);
        assert!(meter.begin().is_ok());
        assert!(meter.admits_payload(4).is_err() && meter.admits_payload(3).is_ok());
    }

    #[test]
    fn time_that_was_used_comes_back() {
        let share = Duration::from_millis(500);
        let meter = Meter::new("the key `a`", Quotas::UNLIMITED.run_time_per_second(share));
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms));
        // One that has begun goes on, and what it uses beyond the quota is missing.
        let (_, began) = meter.begin().unwrap();
        assert!(began.is_some() && meter.begin().is_ok());
        meter.end(ago(700));
        let why = meter.begin().unwrap_err();
        assert_eq!(why.reason, Rejection::Quota);
        assert!(
            why.detail
                .contains("the key `a` may run for 500ms in each second"),
            "{}",
            why.detail
        );
        // 200 ms are missing, of which half a second brings back 250.
        meter.used().run_time.since = ago(500);
        assert!(meter.begin().is_ok());
        meter.set_quotas(Quotas::UNLIMITED.run_time(share));
        assert_eq!(meter.begin().unwrap(), (share, None));
    }

    #[test]
    fn more_than_a_rate_does_not_begin() {
        let meter = Meter::new("the key `a`", Quotas::UNLIMITED.invocations_per_second(3));
        let begun = (0..100).filter(|_| meter.begin().is_ok()).count();
        // More than three only if this took a third of a second.
        assert!((3..100).contains(&begun), "{begun}");
        let why = loop {
            if let Err(why) = meter.begin() {
                break why;
            }
        };
        assert_eq!(why.reason, Rejection::Quota);
        assert!(
            why.detail.contains("may begin 3 invocations per second"),
            "{}",
            why.detail
        );
        meter.set_quotas(Quotas::UNLIMITED);
        assert!((0..1000).all(|_| meter.begin().is_ok()));
    }
}
