//! How much is measured.

use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Whether it is only to be seen that everything works.
    pub(crate) quick: bool,
    /// How often each side has its turn.
    pub(crate) repetitions: usize,
    /// About how long a turn lasts.
    pub(crate) slot: Duration,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        quick: false,
        repetitions: 11,
        slot: Duration::from_millis(50),
    };
    /// Whether it works. Its figures mean little.
    pub(crate) const QUICK: Self = Self {
        quick: true,
        repetitions: 3,
        slot: Duration::from_millis(4),
    };

    /// To find out which of several is the better one, or how single operations are spread.
    pub(crate) fn trial(&self) -> Self {
        Self {
            repetitions: 3,
            slot: self.slot / 8,
            ..*self
        }
    }

    /// Every power of two from `first` to `last`; a few of them in a quick run.
    pub(crate) fn sizes(&self, first: usize, last: usize) -> Vec<usize> {
        let step = if self.quick { 6 } else { 1 };
        let all = std::iter::successors(Some(first), |size| size.checked_mul(2));
        all.take_while(|size| *size <= last).step_by(step).collect()
    }
}
