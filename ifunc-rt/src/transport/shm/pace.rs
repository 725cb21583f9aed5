//! Whether bodies follow one another or come now and then.

use std::cell::Cell;

/// Detects a stream by the time between two bodies. While there is a stream it reads the clock seldom: a reading takes a
/// tenth of a small body's time.
#[derive(Default)]
pub(super) struct Pace {
    /// The last reading of the clock, in ticks.
    measured: Cell<u64>,
    /// Ticks that a stream may have taken since then.
    allowed: Cell<u64>,
    /// Bodies before the next reading.
    skip: Cell<u32>,
}

impl Pace {
    /// Bodies without a reading after a reading that found a stream.
    const SKIPPED: u32 = 3;

    /// Whether the next body belongs to a stream, in which it takes no more than `allowed` ticks.
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
        let streams = now.wrapping_sub(self.measured.replace(now)) < allowed;
        self.allowed.set(0);
        self.skip.set(if streams { Self::SKIPPED } else { 0 });
        streams
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Pace;

    #[test]
    fn the_clock_is_read_once_for_several_bodies_of_a_stream() {
        let pace = Pace::default();
        let at = |now| pace.streams(100, || now);
        let unread = || pace.streams(100, || unreachable!("the clock is not read"));
        assert!(!at(1000));
        assert!(!at(1100), "just too late");
        assert!(at(1199));
        assert!((0..Pace::SKIPPED).all(|_| unread()));
        // The reading covers the bodies since the last one.
        assert!(at(1199 + 399));
        assert!((0..Pace::SKIPPED).all(|_| unread()));
        assert!(!at(1199 + 399 + 400));
        assert!(!at(3000), "one that was late is measured alone");
    }

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
        assert_eq!(all(50, 50, true), 50, "one after another");
        // Those that are not measured, and the one whose measurement covers them.
        assert!(all(20, 300, false) >= 20 - Pace::SKIPPED, "now and then again");
    }
}
