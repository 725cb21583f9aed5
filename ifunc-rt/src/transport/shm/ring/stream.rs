//! Staying some frames after a producer that streams.

/// Whether the producer sends one frame after another, so that there is always a next one.
///
/// A consumer that is the faster of the two would catch up with such a producer and read each slot while it is being
/// written. The slot's cache line would then go back and forth several times, and both sides would wait for it (25 ns a
/// frame become 60). So the consumer stays some frames after the producer: before a poll it reads one slot further on, one
/// line of many, until that one is written. The distance is about the number of frames of one poll, at whose end the
/// consumer would have caught up otherwise; what the processor prefetches is written by then too (8 bytes 35 → 24 ns).
#[derive(Clone, Copy, Default)]
pub(super) struct Stream {
    /// Polls in a row that found a frame at once, the first of them perhaps late.
    found: u64,
    /// Polls in vain since the last one that found a frame, at most [`MAX_VAIN`](Self::MAX_VAIN).
    vain: u32,
    /// Distance to the producer while it streams.
    distance: u32,
}

impl Stream {
    /// Polls in a row that make it a stream.
    const POLLS: u64 = 16;
    /// Polls in vain that do not interrupt it.
    const MAX_VAIN: u32 = 2;
    /// Distance in frames: at least `NEAR`; up to `FAR` where the producer gets further ahead.
    const NEAR: u32 = 15;
    const FAR: u32 = 63;
    const STEP: u32 = 16;
    /// How often a slot is read, with a pause after each read, for every step: about a microsecond.
    const READS: u32 = 16;

    #[inline]
    pub(super) fn is_stream(&self) -> bool {
        self.found >= Self::POLLS
    }

    /// Waits until the producer is `distance` ahead. `has_more_than` says whether more than so many frames have arrived.
    pub(super) fn fall_behind(&mut self, has_more_than: impl Fn(u32) -> bool) {
        let comes = |frames| {
            (0..Self::READS).any(|_| {
                let comes = has_more_than(frames);
                if !comes {
                    std::hint::spin_loop();
                }
                comes
            })
        };
        let mut far = Self::NEAR;
        loop {
            if !comes(far) {
                self.found = 0;
                self.distance = Self::NEAR;
                return;
            }
            if far >= self.distance {
                self.distance = (far + Self::STEP).min(Self::FAR);
                return;
            }
            far += Self::STEP;
        }
    }

    /// A poll ended; `found` a frame or nothing.
    #[inline]
    pub(super) fn end_poll(&mut self, found: bool) {
        if found {
            self.found += 1;
            self.vain = 0;
            return;
        }
        if self.vain < Self::MAX_VAIN {
            self.vain += 1;
        } else {
            self.found = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Stream;

    #[test]
    fn a_producer_that_waits_for_an_answer_is_no_stream() {
        let mut stream = Stream::default();
        for _ in 0..Stream::POLLS {
            stream.end_poll(true);
            (0..2).for_each(|_| stream.end_poll(false));
        }
        assert!(
            stream.is_stream(),
            "one frame after another, and the next one may still come"
        );
        stream.end_poll(false);
        assert!(!stream.is_stream(), "it comes late");
        stream.end_poll(true);
        assert_eq!(stream.found, 1, "perhaps the first of a stream");
    }

    #[test]
    fn the_distance_grows_by_steps_as_far_as_the_producer_is_ahead() {
        let mut stream = Stream::default();
        let mut after = |ahead: u32| {
            stream.fall_behind(|frames| ahead > frames);
            stream.distance
        };
        assert_eq!([100; 4].map(&mut after), [31, 47, 63, 63]);
        assert_eq!(after(63), Stream::NEAR, "it is not as far ahead any more");
        assert_eq!([30, 40, 100].map(&mut after), [31, 47, 63]);
        assert_eq!(after(15), Stream::NEAR);
    }
}
