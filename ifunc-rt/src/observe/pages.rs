//! A snapshot that a source reads page by page.

use std::time::{Duration, Instant};

use ifunc_abi::stats::{MAX_BYTES, MAX_LISTED, PageHead, VERSION};
use ifunc_abi::status::{Rejection, Status};
use zerocopy::IntoBytes;

use super::metrics::Metrics;

/// Least time between two snapshots of one connection: a request before that gets the previous one again.
const PAUSE: Duration = Duration::from_millis(50);
/// A pause is at least this many times as long as the previous snapshot took.
const SHARE: u32 = 20;

/// The snapshot that a source reads: one per connection, the last that it requested.
#[derive(Debug)]
pub(crate) struct Pages {
    number: u64,
    /// Or why there are none.
    bytes: Result<Vec<u8>, Rejection>,
    /// When the next one may be taken.
    next: Option<Instant>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            number: 0,
            bytes: Ok(Vec::new()),
            next: None,
        }
    }
}

impl Pages {
    /// The page that begins at `offset`, of at most `room` bytes; if there is none, the first of a new snapshot for connection `asked_by`,
    /// or of the last one again, if that was taken only just before `now`.
    pub(crate) fn page(
        &mut self,
        metrics: &Metrics,
        asked_by: u64,
        offset: u32,
        room: usize,
        now: Instant,
    ) -> (Status, Vec<u8>) {
        let rejected = |why: Rejection, what: &str| (Status::Rejected(why), what.into());
        let Some(room) = room.checked_sub(PageHead::SIZE).filter(|room| *room > 0) else {
            return rejected(
                Rejection::TooLarge,
                "answers of this connection are too small for what was counted",
            );
        };
        let there = self.bytes.as_ref().map_or(0, Vec::len);
        let mut offset = offset as usize;
        let mut cached_for = Duration::ZERO;
        if offset == 0 || offset >= there {
            offset = 0;
            cached_for = self
                .next
                .map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
            if cached_for.is_zero() {
                let began = Instant::now();
                self.take(metrics, asked_by);
                self.next = Some(now + PAUSE.max(began.elapsed() * SHARE));
            }
        }
        let bytes = match &self.bytes {
            Ok(bytes) => bytes,
            Err(Rejection::TooLarge) => {
                return rejected(Rejection::TooLarge, "the metrics are too large to be sent");
            }
            Err(why) => return rejected(*why, ""),
        };
        let part = &bytes[offset..];
        let part = &part[..part.len().min(room)];
        // Not 0 while the same snapshot is served again.
        let micros = cached_for.as_nanos().div_ceil(1000);
        let head = PageHead {
            version: VERSION.into(),
            reserved: 0.into(),
            total: (bytes.len() as u32).into(),
            offset: (offset as u32).into(),
            cached_for_us: u32::try_from(micros).unwrap_or(u32::MAX).into(),
            snapshot: self.number.into(),
        };
        (Status::Executed, [head.as_bytes(), part].concat())
    }

    fn take(&mut self, metrics: &Metrics, asked_by: u64) {
        let mut stats = metrics.snapshot(asked_by);
        stats.sources.truncate(MAX_LISTED);
        stats.ifuncs.truncate(MAX_LISTED);
        self.number = metrics.next_snapshot();
        self.bytes = match stats.encode() {
            Ok(bytes) if bytes.len() <= MAX_BYTES => Ok(bytes),
            Ok(_) => Err(Rejection::TooLarge),
            Err(_) => Err(Rejection::Resources),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ifunc_abi::stats::Timing;

    use super::*;
    use crate::os::EventFd;
    use crate::travel::Travels;

    fn metrics(address: String) -> Arc<Metrics> {
        let hello = crate::hello::serving(ifunc_abi::frame::Limits {
            max_payload: 1,
            max_image: 1,
            max_answer: 1,
        });
        let doorbell = Arc::new(EventFd::new().unwrap());
        Metrics::new(address, Timing::Off, 1, 1, Travels::new(&hello, 1, doorbell))
    }

    #[test]
    fn a_request_that_comes_too_early_gets_the_same_snapshot() {
        let metrics = metrics("shm:x".into());
        let mut pages = Pages::default();
        let began = Instant::now();
        let mut ask = |offset: u32, room: usize, after: Duration| {
            let (status, page) = pages.page(&metrics, 1, offset, room, began + after);
            assert_eq!(status, Status::Executed);
            let (head, part) = PageHead::split(&page).expect("a page");
            (
                head.snapshot.get(),
                head.offset.get(),
                head.cached_for_us.get(),
                part.len(),
                head.total.get(),
            )
        };
        let millis = Duration::from_millis;
        let room = PageHead::SIZE + 10;
        let (first, offset, cached_for, len, total) = ask(0, room, millis(0));
        assert_eq!((offset, cached_for, len), (0, 0, 10));
        // Its further pages are served at once, and as often as they are requested.
        for _ in 0..3 {
            let rest = total - 10;
            assert_eq!(ask(10, 1 << 16, millis(1)), (first, 10, 0, rest as usize, total));
        }
        // From its beginning, or past its end: the same one, as long as it is too early.
        for offset in [0, total, u32::MAX, 0] {
            let (same, offset, cached_for, ..) = ask(offset, room, millis(2));
            assert_eq!((same, offset), (first, 0));
            assert!(cached_for >= 48_000, "{cached_for}");
        }
        // However long the first one took on a busy machine.
        let later = millis(3_600_000);
        let (second, _, cached_for, ..) = ask(0, room, later);
        assert_eq!((second, cached_for), (first + 1, 0));
        assert_eq!(ask(0, room, later).0, second);
        assert_eq!(metrics.next_snapshot(), second + 1, "no other was taken");
    }

    #[test]
    fn a_snapshot_that_is_too_large_is_not_taken_at_every_request() {
        let metrics = metrics("x".repeat(MAX_BYTES));
        let mut pages = Pages::default();
        let now = Instant::now();
        for _ in 0..3 {
            let (status, why) = pages.page(&metrics, 1, 0, 1 << 16, now);
            assert_eq!(status, Status::Rejected(Rejection::TooLarge));
            assert_eq!(why, b"the metrics are too large to be sent");
        }
        assert_eq!(metrics.next_snapshot(), 2, "one was taken");
        let (status, why) = pages.page(&metrics, 1, 0, PageHead::SIZE, now);
        assert_eq!(status, Status::Rejected(Rejection::TooLarge));
        assert!(why.starts_with(b"answers of this connection"));
    }
}
