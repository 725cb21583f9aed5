//! Staying some frames after a producer that streams.

/// Whether the producer sends one frame after another, so that there is always a next one.
///
/// A consumer that is the faster of the two would catch up with such a producer and read each slot while it is being
/// written. The slot's cache line would then go back and forth several times, both sides would wait for it, and the producer would
/// stay the slower one because of that (8 bytes 12 → 37 ns between near cores, 20 → 145 ns between distant ones). So the consumer stays
/// some frames after the producer: before a poll it reads a slot further on, one line of many, until that one is written.
///
/// The times at which frames arrive do not tell such a slow stream from messages that wait for their answers. So the consumer tries: it
/// lets some polls pass, waits once, and lets more pass before each further attempt that was in vain.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// Polls that found a frame.
    found: u64,
    /// How many there are at the next attempt; in a stream, when it counts as long.
    due: u64,
    /// Polls between the last attempt and the next one.
    interval: u64,
    streams: bool,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            found: 0,
            due: Self::LEAST,
            interval: Self::LEAST,
            streams: false,
        }
    }
}

impl Stream {
    /// Polls before an attempt: at least, and at most.
    const LEAST: u64 = 16;
    const MOST: u64 = 1 << 16;
    /// Polls of a long stream, after whose end the next attempt comes soon.
    const LONG: u64 = 8;
    /// Frames between the two, if they are short. A poll takes up to 64. A processor that reads so many slots in their order fetches up to a
    /// page ahead, which is 64 slots more (127 is as slow as none between distant cores, 255 no faster).
    const DISTANCE: u32 = 191;
    /// With fewer, every message would look like a stream.
    const SHORTEST: u32 = 4;
    /// Bytes of bodies that take as long as a frame.
    const BYTES: u64 = 4 << 10;
    /// The frames of [`DISTANCE`](Self::DISTANCE) that are awaited one after the other, each counted; of a shorter distance, as large parts.
    /// The first frames may still come slowly.
    const STEPS: [u32; 15] = [4, 8, 12, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192];
    /// Ticks of 16 frames of a stream: a producer that takes longer than 0.1 microseconds for a frame waits for something else.
    const STEP: u64 = 4096;
    /// Ticks of a wait in a stream, for the frames of one poll: other connections of the target wait as long.
    const WAIT: u64 = 4 * Self::STEP;
    /// Ticks of a step of an attempt, and of the whole attempt: the first frames are those that the consumer was too close to.
    const FIRST_STEP: u64 = 2 * Self::STEP;
    const ATTEMPT: u64 = 16 * Self::STEP;
    /// How often a slot is read in a step, with a pause after each read, where there is no clock.
    const READS: u32 = 1 << 10;

    /// Whether the next poll waits.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.streams || self.is_due()
    }

    fn is_due(&self) -> bool {
        self.found >= self.due
    }

    /// The distance for frames whose bodies have so many bytes.
    pub(super) fn distance(bytes: u64) -> u32 {
        Self::DISTANCE / (1 + bytes / Self::BYTES) as u32
    }

    /// Waits until the producer is `distance` ahead (0: never), or turns out not to stream. `has_more_than` says whether more than so many
    /// frames have arrived; `ticks` reads a clock of some two gigahertz.
    pub(super) fn fall_behind(
        &mut self,
        distance: u32,
        has_more_than: impl Fn(u32) -> bool,
        ticks: impl Fn() -> u64,
    ) {
        if distance < Self::SHORTEST {
            self.streams = false;
            self.due = self.found + Self::MOST;
            return;
        }
        if self.streams && has_more_than(distance) {
            return;
        }
        let (most, all) = if self.streams {
            (Self::STEP, Self::WAIT)
        } else {
            (Self::FIRST_STEP, Self::ATTEMPT)
        };
        let began = ticks();
        let comes = |part| {
            let (frames, step) = (distance * part / (Self::DISTANCE + 1), ticks());
            for _ in 0..Self::READS {
                if has_more_than(frames) {
                    return true;
                }
                std::hint::spin_loop();
                let now = ticks();
                if now.wrapping_sub(step) > most || now.wrapping_sub(began) > all {
                    break;
                }
            }
            false
        };
        let streams = Self::STEPS.into_iter().all(comes);
        match (self.streams, streams) {
            (true, true) => {}
            (false, true) => self.due = self.found + Self::LONG,
            (streamed, false) => {
                self.interval = match streamed && self.is_due() {
                    true => Self::LEAST,
                    false => (2 * self.interval).min(Self::MOST),
                };
                self.due = self.found + self.interval;
            }
        }
        self.streams = streams;
    }

    /// A poll ended; `found` a frame or nothing.
    #[inline]
    pub(super) fn end_poll(&mut self, found: bool) {
        self.found += u64::from(found);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::Stream;

    /// A producer whose frames come at a constant pace, and a clock.
    struct Producer {
        now: Cell<u64>,
        per_frame: u64,
        most: u32,
        bytes: u64,
    }

    impl Producer {
        fn new(per_frame: u64) -> Self {
            Self {
                now: Cell::new(0),
                per_frame,
                most: u32::MAX,
                bytes: 0,
            }
        }

        /// Lets a stream wait. Returns how long it did, in ticks.
        fn await_by(&self, stream: &mut Stream) -> u64 {
            self.now.set(0);
            let ahead = |frames| self.now.get() / self.per_frame > u64::from(frames) && frames < self.most;
            stream.fall_behind(Stream::distance(self.bytes), ahead, || {
                self.now.set(self.now.get() + 16);
                self.now.get()
            });
            self.now.get()
        }
    }

    /// Polls until one waits.
    fn polls(stream: &mut Stream) -> u64 {
        let mut polls = 0;
        while !stream.waits() {
            stream.end_poll(false);
            stream.end_poll(true);
            polls += 1;
        }
        polls
    }

    #[test]
    fn a_producer_that_is_fast_is_let_ahead() {
        let (mut stream, producer) = (Stream::default(), Producer::new(20));
        assert_eq!(polls(&mut stream), Stream::LEAST);
        for _ in 0..100 {
            let waited = producer.await_by(&mut stream);
            assert!(waited >= 20 * 190, "{waited}");
            assert!(stream.waits(), "before every poll of a stream");
            stream.end_poll(true);
        }
    }

    #[test]
    fn the_longer_the_bodies_the_fewer_are_awaited() {
        for (bytes, distance) in [(0, 191), (4095, 191), (4096, 95), (64 << 10, 11), (128 << 10, 5)] {
            let (mut stream, mut producer) = (Stream::default(), Producer::new(200));
            (producer.bytes, producer.most) = (bytes, distance + 1);
            polls(&mut stream);
            producer.await_by(&mut stream);
            assert!(stream.waits(), "{bytes}");
        }
    }

    #[test]
    fn attempts_in_vain_become_rare() {
        let (mut stream, producer) = (Stream::default(), Producer::new(600));
        let mut expected = Stream::LEAST;
        for _ in 0..20 {
            assert_eq!(polls(&mut stream), expected);
            let waited = producer.await_by(&mut stream);
            assert!(!stream.waits());
            assert!(waited <= Stream::ATTEMPT + 1000, "{waited}");
            expected = (2 * expected).min(Stream::MOST);
        }
        assert_eq!(expected, Stream::MOST);
    }

    #[test]
    fn a_producer_that_waits_for_answers_costs_one_step() {
        let mut producer = Producer::new(20);
        producer.most = 64;
        let mut stream = Stream::default();
        polls(&mut stream);
        let waited = producer.await_by(&mut stream);
        assert!(!stream.waits());
        assert!(waited < 64 * 20 + 2 * Stream::FIRST_STEP, "{waited}");
    }

    #[test]
    fn the_end_of_a_long_stream_is_no_attempt_in_vain() {
        let (fast, slow) = (Producer::new(20), Producer::new(10_000));
        let mut stream = Stream::default();
        polls(&mut stream);
        for (frames, expected) in [
            (Stream::LONG, Stream::LEAST),
            (Stream::LONG - 1, 2 * Stream::LEAST),
        ] {
            fast.await_by(&mut stream);
            assert!(stream.waits());
            (0..frames).for_each(|_| stream.end_poll(true));
            let waited = slow.await_by(&mut stream);
            assert!(waited < 2 * Stream::STEP, "{waited}");
            assert_eq!(polls(&mut stream), expected);
        }
    }

    #[test]
    fn a_clock_that_stands_still_ends_an_attempt() {
        let mut stream = Stream::default();
        polls(&mut stream);
        let reads = Cell::new(0);
        stream.fall_behind(
            Stream::distance(0),
            |_| {
                reads.set(reads.get() + 1);
                false
            },
            || 0,
        );
        assert!(!stream.waits());
        assert_eq!(reads.get(), Stream::READS);
    }
}
