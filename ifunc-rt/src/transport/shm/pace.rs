//! Whether bodies follow one another, or come now and then.

use std::cell::Cell;

/// Tells a stream by the time from one to the next, at which it looks seldom while it is one: that takes a tenth of a small body's
/// time.
#[derive(Default)]
pub(super) struct Pace {
    /// When it looked last, in ticks.
    looked: Cell<u64>,
    /// Ticks that a stream may have taken since then.
    allowed: Cell<u64>,
    /// How many pass before the next look.
    skip: Cell<u32>,
}

impl Pace {
    /// Passed unlooked behind a look at a stream.
    const SKIPPED: u32 = 3;

    /// Whether it is a stream, at the next one, which takes no more than so many ticks there.
    #[inline]
    pub(super) fn streams(&self, allowed: u64, ticks: impl FnOnce() -> u64) -> bool {
        let allowed = self.allowed.get() + allowed;
        let skip = self.skip.get();
        if skip > 0 {
            self.skip.set(skip - 1);
            self.allowed.set(allowed);
            return true;
        }
        let now = ticks();
        let streams = now.wrapping_sub(self.looked.replace(now)) < allowed;
        self.allowed.set(0);
        self.skip.set(if streams { Self::SKIPPED } else { 0 });
        streams
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Pace;

    #[test]
    fn a_stream_is_told_by_its_pace() {
        let pace = Pace::default();
        let mut now = 1 << 20;
        let mut all = |times: u32, ticks: u64, streams: bool| {
            (0..times)
                .filter(|_| {
                    now += ticks;
                    pace.streams(100, || now) == streams
                })
                .count() as u32
        };
        assert_eq!(all(10, 150, false), 10, "one now and then");
        assert_eq!(all(50, 50, true), 50, "one behind another");
        // Those that nobody looked at, and the one whose look is at them too.
        assert!(all(20, 300, false) >= 20 - Pace::SKIPPED, "now and then again");
    }
}
