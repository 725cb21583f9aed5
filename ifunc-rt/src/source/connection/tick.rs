//! Noticing that the coarse clock has ticked, without reading it for every frame.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A tick of the coarse clock (some milliseconds).
///
/// To read that clock takes a third of a small send's time. A source that sends many frames per tick reads it for one frame in
/// some, by the rate of the tick before: still [`READINGS`](Self::READINGS) times per tick.
#[derive(Debug)]
pub(super) struct Tick {
    at: Timespec,
    /// Readings in this tick before an attempt to send.
    readings: u32,
    /// Frames without a reading after each reading.
    stride: u32,
}

impl Tick {
    /// Readings per tick of a source that does not read the clock for every frame.
    const READINGS: u32 = 16;
    /// Most frames without a reading. It bounds what is sent without one after a pause.
    const MAX_STRIDE: u32 = 63;

    /// The current tick.
    pub(super) fn now() -> Self {
        Self {
            at: clock_gettime(ClockId::MonotonicCoarse),
            readings: 0,
            stride: 0,
        }
    }

    /// Counts the last reading: an attempt to send a frame follows it.
    pub(super) fn count(&mut self) {
        self.readings += 1;
    }

    /// Reads the clock: how many frames may be sent before the next reading, or `None` at the beginning of a tick.
    pub(super) fn read(&mut self) -> Option<u32> {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        if self.at == now {
            return Some(self.stride);
        }
        let frames = self.readings * (self.stride + 1);
        self.stride = (frames / Self::READINGS).min(Self::MAX_STRIDE);
        (self.at, self.readings) = (now, 0);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Tick;

    /// Sends a frame per `pause` until the end of the tick is noticed.
    fn frames_in(tick: &mut Tick, pause: Duration) {
        let begin = Instant::now();
        while let Some(frames) = tick.read() {
            tick.count();
            (0..=frames).for_each(|_| std::thread::sleep(pause));
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "it is noticed");
    }

    #[test]
    fn a_slow_source_reads_the_clock_for_every_frame() {
        let mut tick = Tick::now();
        for _ in 0..5 {
            frames_in(&mut tick, Duration::from_millis(20));
            assert_eq!(tick.stride, 0);
        }
    }

    #[test]
    fn a_fast_source_reads_the_clock_for_some_frames_and_notices_every_tick() {
        let mut tick = Tick::now();
        for _ in 0..5 {
            frames_in(&mut tick, Duration::ZERO);
        }
        tick.readings = 4 * Tick::READINGS;
        let stride = tick.stride + 1;
        std::thread::sleep(Duration::from_millis(20));
        assert!(tick.read().is_none());
        assert_eq!(tick.stride, (4 * stride).min(Tick::MAX_STRIDE));
        assert_eq!(tick.read(), Some(tick.stride));
        assert!(tick.stride > 0);
    }
}
