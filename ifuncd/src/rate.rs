//! How often something may happen.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// So many per second; as many may come at once after a second without any.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    used: f64,
    since: Option<Instant>,
}

impl Rate {
    /// Nothing has happened yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            used: 0.0,
            since: None,
        }))
    }

    /// Takes one of `per_second`, if one is left; `None`: there is no limit.
    pub(crate) fn take(&self, per_second: Option<u32>, now: Instant) -> bool {
        let Some(per_second) = per_second.map(f64::from) else {
            return true;
        };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.since.replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(since).as_secs_f64();
        state.used = (state.used - passed * per_second).max(0.0);
        let has_one = state.used + 1.0 <= per_second;
        if has_one {
            state.used += 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_brings_as_many_as_the_rate_says() {
        let rate = Rate::default();
        let start = Instant::now();
        let taken = |ms: u64| {
            let now = start + Duration::from_millis(ms);
            (0..100).filter(|_| rate.take(Some(4), now)).count()
        };
        assert_eq!((taken(0), taken(100), taken(600), taken(60_000)), (4, 0, 2, 4));
        assert!(!rate.take(Some(0), start + Duration::from_secs(3600)));
        assert!((0..1000).all(|_| rate.take(None, start)));
    }
}
