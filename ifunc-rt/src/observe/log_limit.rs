//! Limits of log lines that peers cause: one that connects a thousand times a second must not fill a disk.
//!
//! A line that the limit leaves out is an event of the level `DEBUG` whose target is [`SUPPRESSED`], with the same fields. An audit log with a
//! limit of its own enables that target; for others these events cost nothing. The field
//! `refused` is in each event by which the target refuses something, and says what: `connection`, `frame`, `image`, `installed image` or
//! `invocation`. Each refusal is one event.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The target of the `tracing` events (`DEBUG`) that are the log lines which a limit left out, with the fields of those lines, and refusals of
/// invocations that have no line because that of their image says why. An audit log
/// that enables it misses no refusal: each is one event, here or as a line, whose field `refused` says what was refused.
pub const SUPPRESSED: &str = "ifunc_rt::suppressed";

/// Lines that may be logged at once, after a pause.
const BURST: u32 = 10;
/// One more may be logged after this long.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limit of one kind of line, in this process: [`limited!`] has one at each place.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Lines that were logged and that no interval has passed for.
    logged: u32,
    /// Since when the next interval runs. `None`: no line was logged.
    since: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            logged: 0,
            since: None,
            suppressed: 0,
        }))
    }

    /// Lifts all limits on this thread, until the result is dropped.
    #[cfg(test)]
    pub(crate) fn lift() -> Lifted {
        IS_LIFTED.set(true);
        Lifted
    }

    /// Whether to log a line now. If so, returns how many were suppressed since the last one; the inner `None`: none.
    pub(crate) fn admits(&self, now: Instant) -> Option<Option<u64>> {
        #[cfg(test)]
        if IS_LIFTED.get() {
            return Some(None);
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *state.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_secs() / INTERVAL.as_secs();
        match u32::try_from(passed) {
            Ok(passed) if passed < state.logged => {
                state.logged -= passed;
                state.since = Some(since + INTERVAL * passed);
            }
            _ => {
                state.logged = 0;
                state.since = Some(now);
            }
        }
        if state.logged >= BURST {
            state.suppressed += 1;
            return None;
        }
        state.logged += 1;
        let suppressed = std::mem::take(&mut state.suppressed);
        Some((suppressed > 0).then_some(suppressed))
    }
}

#[cfg(test)]
thread_local! {
    static IS_LIFTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// See [`LogLimit::lift`].
#[cfg(test)]
pub(crate) struct Lifted;

#[cfg(test)]
impl Drop for Lifted {
    fn drop(&mut self) {
        IS_LIFTED.set(false);
    }
}

/// Logs a line that a peer can cause as often as it likes: `limited!(warn, [parent: &span] field = value, "message")`. At most ten
/// at once, then one per second; `suppressed` counts those between, which are events of [`SUPPRESSED`].
macro_rules! limited {
    (@suppressed [parent: $parent:expr] $($event:tt)+) => {
        ::tracing::debug!(target: $crate::observe::SUPPRESSED, parent: $parent, $($event)+)
    };
    (@suppressed $($event:tt)+) => {
        ::tracing::debug!(target: $crate::observe::SUPPRESSED, $($event)+)
    };
    (@log $level:ident, $name:ident, [parent: $parent:expr] $($event:tt)+) => {
        ::tracing::$level!(parent: $parent, suppressed = $name, $($event)+)
    };
    (@log $level:ident, $name:ident, $($event:tt)+) => {
        ::tracing::$level!(suppressed = $name, $($event)+)
    };
    (@enabled info) => { ::tracing::enabled!(::tracing::Level::INFO) };
    (@enabled warn) => { ::tracing::enabled!(::tracing::Level::WARN) };
    ($level:ident, $($event:tt)+) => {{
        static LIMIT: $crate::observe::LogLimit = $crate::observe::LogLimit::new();
        if limited!(@enabled $level) {
            match LIMIT.admits(::std::time::Instant::now()) {
                Some(suppressed) => limited!(@log $level, suppressed, $($event)+),
                None => limited!(@suppressed $($event)+),
            }
        }
    }};
}
pub(crate) use limited;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_per_second_with_a_count() {
        let limit = LogLimit::new();
        let start = Instant::now();
        let mut lines = Vec::new();
        for ms in 0..5_000 {
            lines.extend(limit.admits(start + Duration::from_millis(ms)));
        }
        let (burst, rest) = lines.split_at(BURST as usize);
        assert!(burst.iter().all(Option::is_none));
        // 990 in the first second, because 10 were logged.
        assert_eq!(rest, [990, 999, 999, 999].map(Some));
        // What came after the last line is counted by the next one, and a pause allows a burst again.
        let later = start + Duration::from_secs(60);
        assert_eq!(limit.admits(later), Some(Some(999)));
        let more = (1..20).filter(|_| limit.admits(later).is_some()).count();
        assert_eq!(more, BURST as usize - 1);
    }

    #[test]
    fn lines_that_come_slowly_are_all_logged() {
        let limit = LogLimit::new();
        let start = Instant::now();
        for second in 0..100 {
            assert_eq!(limit.admits(start + Duration::from_secs(second)), Some(None));
        }
        // Time that does not pass suppresses none of the burst.
        let limit = LogLimit::new();
        assert!((0..BURST).all(|_| limit.admits(start) == Some(None)));
        assert_eq!(limit.admits(start), None);
    }
}
