//! Writing a long payload in memory of the producer's own first.
//!
//! Each line of the data ring was read by the consumer a lap ago, and a store waits until the consumer's core gives the line up. How
//! long depends on the two cores: between neighbours a body is written in place at the speed of their caches, between distant ones
//! ten times slower. A copy by [non-temporal stores](crate::transport::nontemporal) does not wait; but the stores of an encoder are
//! ordinary ones. So where writing in place is slow, the encoder writes to private memory, which stays in the producer's cache, and the
//! commit copies it into the ring.
//!
//! Nothing tells beforehand which cores are distant, and the two sides may move. The producer therefore measures both from time to time,
//! for each length by itself.

use ifunc_proto::buffer::AlignedBuffer;

use crate::transport::nontemporal;

/// Length from which on a body may be staged.
pub(super) const LEAST: usize = 4 << 10;
/// Bodies from this length on are written in place, so that private memory is no longer than that.
const TOO_LONG: usize = 2 << 20;
/// Lengths between two powers of two are measured together.
const CLASSES: usize = (TOO_LONG / LEAST).ilog2() as usize;

/// Ticks of the processor's counter, for each `LEAST` bytes, by which staging must be faster for the producer than writing in place. The consumer
/// reads a staged body from memory, not from a cache: its first line comes a thousand ticks later, and the others come more slowly. So between
/// neighbours, 16 KiB staged take 0.5 µs less for the producer, and 1 µs more for the consumer. The margin covers that: 2048 ticks for a body, and 256 for each
/// `LEAST` bytes.
fn margin(class: usize) -> u64 {
    (2048 >> class) + 256
}

/// Where a producer writes its long bodies.
pub(super) struct Staging {
    choices: [Choice; CLASSES],
    /// Private memory, as long as the longest body that was staged.
    memory: AlignedBuffer,
    /// What [`begin`](Self::begin) decided.
    begun: Begun,
}

#[derive(Clone, Copy, Default)]
struct Begun {
    /// Whether the body is written to private memory.
    is_staged: bool,
    /// Class of its length, and when it was begun, if it is measured.
    measured: Option<(usize, u64)>,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            choices: [Choice::NEW; CLASSES],
            memory: AlignedBuffer::default(),
            begun: Begun::default(),
        }
    }
}

impl Staging {
    /// Begins a body of at most `len` bytes, `LEAST` or more. Returns whether it is written to [`memory`](Self::memory). In the
    /// `first_lap` of a ring nothing is measured: the kernel provides its memory only then.
    pub(super) fn begin(&mut self, len: usize, first_lap: bool, ticks: impl FnOnce() -> u64) -> bool {
        self.begun = Begun::default();
        let class = (len / LEAST).ilog2() as usize;
        if nontemporal::AVAILABLE
            && !first_lap
            && let Some(choice) = self.choices.get_mut(class)
        {
            let (is_staged, is_measured) = choice.next(margin(class));
            self.begun.is_staged = is_staged && self.has_memory(len);
            self.begun.measured = is_measured.then(|| (class, ticks()));
        }
        self.begun.is_staged
    }

    fn has_memory(&mut self, len: usize) -> bool {
        self.memory.len() >= len
            || self
                .memory
                .try_resize(len.next_multiple_of(nontemporal::LINE))
                .is_some()
    }

    /// Whether the body that was begun last is written to [`memory`](Self::memory).
    pub(super) fn is_staged(&self) -> bool {
        self.begun.is_staged
    }

    /// The private memory of `len` bytes, which is no more than was begun.
    pub(super) fn memory(&mut self, len: usize) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[..len]
    }

    /// The body that was begun lies in the ring; it has `len` bytes.
    pub(super) fn end(&mut self, len: usize, ticks: impl FnOnce() -> u64) {
        let Begun { is_staged, measured } = std::mem::take(&mut self.begun);
        // One that was to be much longer is not like the others of its class.
        if let Some((class, begun)) = measured
            && len >= LEAST << class
        {
            let took = ticks().wrapping_sub(begun);
            self.choices[class].measured(is_staged, took / (len / LEAST) as u64);
        }
    }
}

#[cfg(all(test, not(loom)))]
impl Staging {
    /// As if staging had been measured to be faster.
    pub(super) fn stage_all(&mut self) {
        self.choices = [Choice {
            bodies: 2 * Choice::TRIALS + 1,
            period: usize::MAX,
            is_staged: true,
            ..Choice::NEW
        }; CLASSES];
    }
}

/// A measurement ends before the next one begins.
const _: () = assert!(2 * Choice::TRIALS < Choice::SHORTEST);

/// Where bodies of about one length are written.
#[derive(Clone, Copy)]
struct Choice {
    /// Bodies since the last measurement began.
    bodies: usize,
    /// Bodies from one measurement to the next.
    period: usize,
    /// What bodies took in place and staged, in ticks for each `LEAST` bytes.
    took: [[u64; Self::TRIALS]; 2],
    is_staged: bool,
}

impl Choice {
    /// Times of bodies that were not measured: with them, writing in place is faster.
    const UNMEASURED: [[u64; Self::TRIALS]; 2] = [[0; _], [u64::MAX; _]];
    const NEW: Self = Self {
        bodies: Self::SHORTEST,
        period: Self::SHORTEST,
        took: Self::UNMEASURED,
        is_staged: false,
    };

    /// Bodies measured in place, and as many staged. The median of the former counts: one may be interrupted, and one may find its lines
    /// in the producer's cache, after a pause. Of the latter, the least counts: they may only be interrupted.
    const TRIALS: usize = 3;
    /// Bodies from one measurement to the next, as long as the outcome is the same: four times as many each time. After a pause, the
    /// lines of a whole lap may be in neither cache, and the outcome is wrong.
    const SHORTEST: usize = 16;
    /// Three bodies of so many that are written in the slower way, by a factor of up to ten, cost one or two percent.
    const LONGEST: usize = 1024;

    /// Whether the next body is staged, which must take `margin` ticks less, and whether it is measured.
    fn next(&mut self, margin: u64) -> (bool, bool) {
        if self.bodies == self.period {
            (self.bodies, self.took) = (0, Self::UNMEASURED);
        }
        self.bodies += 1;
        if self.bodies <= 2 * Self::TRIALS {
            return (self.bodies > Self::TRIALS, true);
        }
        if self.bodies == 2 * Self::TRIALS + 1 {
            let [in_place, staged] = &mut self.took;
            in_place.sort_unstable();
            let (in_place, staged) = (in_place[Self::TRIALS / 2], staged.iter().min());
            let is_staged = staged.is_some_and(|staged| staged.saturating_add(margin) < in_place);
            self.period = if is_staged == self.is_staged {
                (4 * self.period).min(Self::LONGEST)
            } else {
                Self::SHORTEST
            };
            self.is_staged = is_staged;
        }
        (self.is_staged, false)
    }

    /// What the body took that `next` was called for.
    fn measured(&mut self, is_staged: bool, ticks: u64) {
        self.took[usize::from(is_staged)][(self.bodies - 1) % Self::TRIALS] = ticks;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{CLASSES, Choice, LEAST, Staging, TOO_LONG, margin};
    use crate::transport::nontemporal;

    /// A producer whose bodies take so many ticks for each `LEAST` bytes in place and staged.
    struct Clock {
        staging: Staging,
        now: u64,
        ticks: [u64; 2],
    }

    impl Clock {
        fn new(ticks: [u64; 2]) -> Self {
            let staging = Staging::default();
            Self {
                staging,
                now: 0,
                ticks,
            }
        }

        /// Whether a body of this length is staged.
        fn send(&mut self, len: usize) -> bool {
            let is_staged = self.staging.begin(len, false, || self.now);
            assert_eq!(is_staged, self.staging.is_staged());
            self.now += self.ticks[usize::from(is_staged)] * (len / LEAST) as u64;
            self.staging.end(len, || self.now);
            assert!(!self.staging.is_staged(), "it is sent");
            is_staged
        }

        /// How many of so many bodies are staged.
        fn staged(&mut self, len: usize, bodies: usize) -> usize {
            (0..bodies).filter(|_| self.send(len)).count()
        }
    }

    const TRIALS: usize = if nontemporal::AVAILABLE { Choice::TRIALS } else { 0 };
    const REST: usize = Choice::SHORTEST - 2 * Choice::TRIALS;

    #[test]
    fn bodies_are_staged_where_that_is_much_faster() {
        let far = margin(0) + 101;
        for (ticks, is_staged) in [
            ([far, 100], true),
            ([far, 101], false),
            ([far, 9000], false),
            ([0, 0], false),
        ] {
            let mut clock = Clock::new(ticks);
            assert_eq!(clock.staged(LEAST, Choice::TRIALS), 0);
            assert_eq!(clock.staged(LEAST, Choice::TRIALS), TRIALS);
            let all = is_staged && nontemporal::AVAILABLE;
            assert_eq!(clock.staged(LEAST, REST), if all { REST } else { 0 });
        }
    }

    #[test]
    fn an_outcome_that_stays_is_measured_less_often_and_another_one_again_soon() {
        if !nontemporal::AVAILABLE {
            return;
        }
        let far = margin(0) + 101;
        let mut clock = Clock::new([far, 100]);
        // Bodies from the first of a measurement to the first of the next one.
        let mut measured_after = |ticks| {
            clock.ticks[0] = ticks;
            let is_measured = |clock: &mut Clock| {
                clock.send(LEAST);
                clock.staging.choices[0].bodies == 1
            };
            1 + std::iter::repeat_with(|| is_measured(&mut clock))
                .take_while(|is_first| !is_first)
                .count()
        };
        assert_eq!(measured_after(far), 1);
        let (near, mut periods) = (50, vec![]);
        for ticks in [far, far, far, far, far, near, near, far] {
            periods.push(measured_after(ticks));
        }
        // The first body of each was sent before its time changed.
        assert_eq!(periods, [16, 64, 256, 1024, 1024, 16, 64, 16]);
    }

    #[test]
    fn one_body_that_is_unlike_the_others_decides_nothing() {
        let far = margin(0) + 101;
        for (in_place, first, is_staged) in [(100, 1 << 40, false), (far, 0, true)] {
            let mut clock = Clock::new([first, 100]);
            assert!(!clock.send(LEAST));
            clock.ticks[0] = in_place;
            let staged = clock.staged(LEAST, Choice::SHORTEST - 1);
            let all = is_staged && nontemporal::AVAILABLE;
            assert_eq!(staged, if all { TRIALS + REST } else { TRIALS });
        }
    }

    #[test]
    fn each_length_is_measured_by_itself_and_the_longest_are_written_in_place() {
        let mut clock = Clock::new([1000, 100]);
        for len in (0..CLASSES).map(|class| LEAST << class) {
            assert_eq!(clock.staged(len, Choice::TRIALS), 0);
        }
        for len in (0..CLASSES).map(|class| (LEAST << class) + 1) {
            assert_eq!(clock.staged(len, Choice::TRIALS), TRIALS);
        }
        assert_eq!(clock.staged(TOO_LONG, 3 * Choice::TRIALS), 0);
        assert!(clock.staging.memory.len() < TOO_LONG);
    }

    #[test]
    fn neither_the_first_lap_nor_a_body_that_turns_out_short_is_measured() {
        let mut staging = Staging::default();
        let unread = || unreachable!("the clock is not read");
        for _ in 0..2 * Choice::LONGEST {
            assert!(!staging.begin(LEAST, true, unread));
            staging.end(LEAST, unread);
        }
        if !nontemporal::AVAILABLE {
            return;
        }
        assert!(!staging.begin(LEAST, false, || 0));
        staging.end(LEAST - 1, unread);
        assert_eq!(staging.choices[0].took, Choice::UNMEASURED);
        assert!(!staging.begin(LEAST, false, || 5));
        staging.end(LEAST, || 12);
        assert_eq!(staging.choices[0].took, [[0, 7, 0], [u64::MAX; _]]);
    }
}
