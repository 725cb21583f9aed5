//! Repetitions and durations.

use std::time::Duration;

/// Repetitions and durations of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Whether the run only tests that everything works.
    pub(crate) quick: bool,
    /// Number of slots per side.
    pub(crate) repetitions: usize,
    /// Approximate duration of a slot.
    pub(crate) slot: Duration,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        quick: false,
        repetitions: 11,
        slot: Duration::from_millis(50),
    };
    /// A quick run, whose figures mean little.
    pub(crate) const QUICK: Self = Self {
        quick: true,
        repetitions: 3,
        slot: Duration::from_millis(4),
    };

    /// A short plan for selecting the best of several settings, and for percentiles.
    pub(crate) fn trial(&self) -> Self {
        Self {
            repetitions: 3,
            slot: self.slot / 8,
            ..*self
        }
    }

    /// All powers of two from `first` to `last`; only a few of them in a quick run.
    pub(crate) fn sizes(&self, first: usize, last: usize) -> Vec<usize> {
        let step = if self.quick { 6 } else { 1 };
        let all = std::iter::successors(Some(first), |size| size.checked_mul(2));
        all.take_while(|size| *size <= last).step_by(step).collect()
    }
}
