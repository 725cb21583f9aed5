//! Bodies in fragments whose last one has not arrived, and answers whose last fragment was not sent: one budget for those of all
//! connections, and the age at which one is dropped. A source may begin a body before the target asks any policy, so these bounds hold for every source alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

/// The longest time between two looks at what may be overdue.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// The bounds of a target, and what its connections hold.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// Bytes that all connections may hold.
    max_bytes: usize,
    /// The age at which a body is dropped.
    max_age: Duration,
    held: AtomicUsize,
}

impl Unfinished {
    pub(super) fn new(max_bytes: usize, max_age: Duration) -> Arc<Self> {
        Arc::new(Self {
            max_bytes,
            max_age,
            held: AtomicUsize::new(0),
        })
    }

    /// How often the connections are looked at; `None`: none of them holds anything.
    pub(super) fn interval(&self) -> Option<Duration> {
        let is_held = self.held.load(Ordering::Relaxed) > 0;
        is_held.then(|| (self.max_age / 4).clamp(Duration::from_millis(1), LONGEST_INTERVAL))
    }

    /// What a body is refused with that grew too old.
    #[cold]
    pub(super) fn overdue(&self) -> Refusal {
        Refusal::new(
            Rejection::Quota,
            format!(
                "a body in fragments was not complete after {:?}, or an answer in fragments was not taken; help: `Target::builder().unfinished_bodies(..)` on the target",
                self.max_age
            ),
        )
    }

    /// Counts `bytes` more of an answer.
    ///
    /// # Errors
    /// There would be too many.
    pub(super) fn hold_answer(&self, bytes: usize) -> Result<(), String> {
        let set = |all: usize| all.checked_add(bytes).filter(|all| *all <= self.max_bytes);
        let result = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        result.map(drop).map_err(|held| {
            let max = self.max_bytes;
            format!(
                "an answer needs {bytes} bytes more, and unfinished bodies and unsent answers hold {held} of {max}; help: try again, or `Target::builder().unfinished_bodies(..)` on the target"
            )
        })
    }

    /// Does not count `bytes` of an answer any longer.
    pub(super) fn release_answer(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cold]
    fn exhausted(&self, bytes: usize) -> Refusal {
        let (held, max) = (self.held.load(Ordering::Relaxed), self.max_bytes);
        Refusal::new(
            Rejection::Quota,
            format!(
                "a body in fragments needs {bytes} bytes, and the unfinished ones of all sources hold {held} of {max}; help: try again, or `Target::builder().unfinished_bodies(..)` on the target"
            ),
        )
    }
}

/// What one connection holds. Dropped, it holds nothing.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<Unfinished>,
    bytes: usize,
    /// The body that was unfinished at the last look, and since when.
    since: Option<(u64, Instant)>,
}

impl Held {
    pub(super) fn new(of: &Arc<Unfinished>) -> Self {
        Self {
            of: Arc::clone(of),
            bytes: 0,
            since: None,
        }
    }

    /// Holds `bytes` bytes from now on.
    ///
    /// # Errors
    /// All connections together would hold more than they may: this one holds what it held.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Refusal> {
        let Unfinished { held, max_bytes, .. } = &*self.of;
        let others = |all: usize| all.saturating_sub(self.bytes);
        let set = |all: usize| {
            let all = others(all).checked_add(bytes)?;
            (bytes <= self.bytes || all <= *max_bytes).then_some(all)
        };
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set)
            .map_err(|_| self.of.exhausted(bytes))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Whether the connection's body is overdue. `unfinished` numbers it, if there is one.
    pub(super) fn is_overdue(&mut self, unfinished: Option<u64>, now: Instant) -> bool {
        let Some(body) = unfinished else {
            self.since = None;
            return false;
        };
        match self.since {
            Some((seen, since)) if seen == body => now.saturating_duration_since(since) >= self.of.max_age,
            _ => {
                self.since = Some((body, now));
                false
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_share_one_budget() {
        let all = Unfinished::new(100, Duration::from_secs(1));
        let (mut one, mut other) = (Held::new(&all), Held::new(&all));
        assert_eq!(all.interval(), None);
        one.set(40).unwrap();
        one.set(80).unwrap();
        let refusal = other.set(21).unwrap_err();
        assert_eq!(refusal.reason, Rejection::Quota);
        assert!(refusal.detail.contains("hold 80 of 100") && refusal.detail.contains("unfinished_bodies"));
        other.set(20).unwrap();
        assert!(one.set(usize::MAX).is_err());
        one.set(0).unwrap();
        other.set(100).unwrap();
        drop(other);
        assert_eq!(all.interval(), None);
    }

    #[test]
    fn a_body_is_overdue_when_it_was_seen_for_so_long() {
        let all = Unfinished::new(100, Duration::from_secs(8));
        let (mut held, begin) = (Held::new(&all), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!held.is_overdue(Some(1), after(0)));
        assert!(!held.is_overdue(Some(1), after(7)));
        assert!(!held.is_overdue(Some(2), after(9)), "it is another one");
        assert!(held.is_overdue(Some(2), after(17)));
        assert!(!held.is_overdue(None, after(18)));
        assert!(!held.is_overdue(Some(2), after(30)));
    }
}
