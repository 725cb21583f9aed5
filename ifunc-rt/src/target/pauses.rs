//! Pauses between the rounds of a target that polls several connections.

/// Lets frames gather before a round of polls, where that makes their sources faster.
///
/// A target that is the faster side finds few frames of each connection in a round, and reads slots close to those that are being written.
/// Their cache lines then go back and forth and the sources wait for them, as those of a stream over one connection would
/// (`transport/shm/ring/stream.rs`). Once the sources have a lead, a round finds many frames of each connection, and they write
/// further on meanwhile. Rounds that find fewer are put off, so that the lead lasts.
///
/// Sources that wait for answers look the same, and a pause only delays them. So the target tries: it measures rounds without pauses, lets
/// the sources gain a lead by longer and longer pauses, and measures rounds again. If it has handled many more frames in a tick it
/// goes on for some time and then tries again. If not, it lets twice as many frames pass before the next attempt.
pub(super) struct Pauses {
    phase: Phase,
    /// What is left of the phase: frames of one without pauses, rounds of one with pauses.
    left: u64,
    /// When the phase began, and the frames that its rounds have handled.
    began: u64,
    frames: u64,
    /// Of rounds without pauses, at the last attempt.
    without: Rate,
    /// Frames between an attempt in vain and the next one.
    rest: u64,
    /// When the last round ended, if there are pauses, and the frames that it has handled.
    ended: u64,
    last: u64,
    /// Ticks of the next pause; 0: this phase has none.
    pause: u64,
    /// The last round handled so many frames that the next one follows at once.
    has_lead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Rounds without pauses.
    Rests,
    /// Rounds without pauses, which are measured.
    MeasuresRest,
    /// Rounds after pauses, of which each is twice as long as the last one.
    GivesLead,
    /// Rounds that are put off while there is no lead, which are measured.
    MeasuresLead,
    /// Such rounds, after they were the faster ones.
    KeepsLead,
}

/// Frames in so many ticks.
#[derive(Clone, Copy, Default)]
struct Rate {
    frames: u64,
    ticks: u64,
}

impl Rate {
    /// Whether it is a third higher than the other one.
    fn far_exceeds(self, other: Self) -> bool {
        let product = |frames: u64, ticks: u64| u128::from(frames) * u128::from(ticks);
        3 * product(self.frames, other.ticks) > 4 * product(other.frames, self.ticks)
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            phase: Phase::Rests,
            left: Self::LEAST_REST,
            began: 0,
            frames: 0,
            without: Rate::default(),
            rest: Self::FIRST_REST,
            ended: 0,
            last: 0,
            pause: 0,
            has_lead: false,
        }
    }
}

impl Pauses {
    /// Ticks from the end of a round to the next one: at first some 7 microseconds, in which ten sources that write in turn gain a lead, and at
    /// most 27, for a hundred.
    const PAUSE: u64 = 1 << 14;
    const MOST: u64 = 1 << 16;
    /// Pauses by which sources gain a lead. The last one takes a tenth of a millisecond, for sources of which each frame waits for lines of distant
    /// cores.
    const LEADS: u64 = 5;
    /// Frames of each connection, on average, that are a lead.
    const LEAD: u64 = 32;
    /// Ticks for each frame, at most: 0.2 microseconds. Sources that take longer wait for something else.
    const PER_FRAME: u64 = 512;
    /// Frames between two attempts: where the last one was not in vain; after the first that was in vain; and at most.
    const LEAST_REST: u64 = 1 << 10;
    const FIRST_REST: u64 = 1 << 14;
    const MOST_REST: u64 = 1 << 22;
    /// Frames without pauses that are measured, and rounds with pauses.
    const MEASURED: u64 = 1 << 10;
    const MEASURED_ROUNDS: u64 = 64;
    /// Rounds after which a measurement ends that has not gained by then.
    const FEW: u64 = 8;
    /// Rounds that keep a lead before the next attempt.
    const LONG: u64 = 1024;

    /// Waits before a round, unless there is a lead, or enough time has passed since the last round. `ticks` reads a clock of some two gigahertz.
    #[inline]
    pub(super) fn before_round(&mut self, ticks: impl Fn() -> u64) {
        if self.has_lead {
            return;
        }
        // Where the clock stands still, so many readings end the pause.
        for _ in 0..self.pause {
            if ticks().wrapping_sub(self.ended) >= self.pause {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// A round has handled so many frames of so many connections.
    #[inline]
    pub(super) fn after_round(&mut self, frames: usize, connections: usize, ticks: impl Fn() -> u64) {
        let frames = frames as u64;
        self.frames += frames;
        let done = if self.pause > 0 { 1 } else { frames };
        self.left = self.left.saturating_sub(done);
        if self.left == 0 || self.pause > 0 {
            self.ended = ticks();
            self.plan(frames, frames / connections.max(1) as u64);
        }
    }

    /// Plans the next round, after one that has handled so many frames, and so many of each connection.
    fn plan(&mut self, frames: u64, of_each: u64) {
        let was_paused = !std::mem::replace(&mut self.has_lead, of_each >= Self::LEAD);
        let last = std::mem::replace(&mut self.last, frames);
        let is_slow = frames < self.pause / Self::PER_FRAME;
        match self.phase {
            Phase::Rests | Phase::MeasuresRest => {}
            Phase::GivesLead if self.has_lead => self.left = 0,
            // Sources that wait for answers send no more in a longer pause, and a stream little more in the first ones.
            Phase::GivesLead if is_slow && self.pause > 2 * Self::PAUSE && 2 * frames < 3 * last => {
                return self.give_up();
            }
            Phase::GivesLead => self.pause *= 2,
            Phase::MeasuresLead if self.left < Self::MEASURED_ROUNDS - Self::FEW && !self.has_gained() => {
                return self.give_up();
            }
            Phase::KeepsLead if is_slow && was_paused => return self.rest(),
            Phase::MeasuresLead | Phase::KeepsLead if was_paused && !self.has_lead => {
                self.pause = (2 * self.pause).min(Self::MOST);
            }
            Phase::MeasuresLead | Phase::KeepsLead => {}
        }
        if self.left == 0 {
            self.end_phase();
        }
    }

    /// The frames per tick of this phase.
    fn measured(&self) -> Rate {
        Rate {
            frames: self.frames,
            ticks: self.ended.wrapping_sub(self.began),
        }
    }

    /// Whether more frames are handled in a tick than without pauses: by a third.
    fn has_gained(&self) -> bool {
        self.measured().far_exceeds(self.without)
    }

    fn end_phase(&mut self) {
        match self.phase {
            Phase::Rests => self.begin(Phase::MeasuresRest, Self::MEASURED, 0),
            Phase::MeasuresRest => {
                let measured = self.measured();
                let is_slow = measured.frames < measured.ticks / Self::PER_FRAME;
                // Where the clock stands still, nothing can be measured.
                if self.has_lead || is_slow || measured.ticks == 0 {
                    return self.rest();
                }
                (self.without, self.last) = (measured, 0);
                self.begin(Phase::GivesLead, Self::LEADS, Self::PAUSE);
            }
            Phase::GivesLead => self.begin(Phase::MeasuresLead, Self::MEASURED_ROUNDS, Self::PAUSE),
            Phase::MeasuresLead if self.has_gained() => {
                self.rest = Self::FIRST_REST;
                self.begin(Phase::KeepsLead, Self::LONG, Self::PAUSE);
            }
            Phase::MeasuresLead => self.give_up(),
            Phase::KeepsLead => self.rest(),
        }
    }

    /// Lets a few frames pass without pauses.
    fn rest(&mut self) {
        self.begin(Phase::Rests, Self::LEAST_REST, 0);
    }

    /// After an attempt in vain: lets twice as many frames pass as after the one before.
    fn give_up(&mut self) {
        let rest = self.rest;
        self.rest = (2 * rest).min(Self::MOST_REST);
        self.begin(Phase::Rests, rest, 0);
    }

    /// Begins a phase. What is `left` of it is as in the field.
    fn begin(&mut self, phase: Phase, left: u64, pause: u64) {
        (self.phase, self.left, self.pause) = (phase, left, pause);
        (self.began, self.frames) = (self.ended, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::Pauses;

    /// Frames of a connection that a round handles at most.
    const QUANTUM: u64 = 64;
    /// Ticks in which a target handles a frame, and looks at a connection.
    const HANDLED: u64 = 15;
    const LOOK: u64 = 10;

    /// What sources do.
    #[derive(Clone, Copy)]
    enum Pace {
        /// They send one frame after another, in so many ticks each; without a lead, in the second number.
        Streams(u64, u64),
        /// They send a frame in so many ticks, whatever the target does.
        Steady(u64),
        /// So many in all are under way, and each is sent again so many ticks after the round that handled it.
        Answered(u64, u64),
    }

    /// Sources, a target that polls them, and a clock.
    struct Model {
        now: Cell<u64>,
        pace: Pace,
        connections: u64,
        /// Up to when what they sent is counted in `waiting`.
        counted: u64,
        /// Frames that were not handled, in parts.
        waiting: f64,
        /// When the last round handled frames, and how many.
        handled: (u64, u64),
    }

    impl Model {
        fn new(pace: Pace, connections: u64) -> Self {
            Self {
                now: Cell::new(0),
                pace,
                connections,
                counted: 0,
                waiting: 0.0,
                handled: (0, 0),
            }
        }

        fn arrive(&mut self) {
            while self.counted < self.now.get() {
                let step = (self.now.get() - self.counted).min(64);
                self.counted += step;
                let has_lead = self.waiting > (QUANTUM / 2 * self.connections) as f64;
                self.waiting += match self.pace {
                    Pace::Streams(fast, _) if has_lead => step as f64 / fast as f64,
                    Pace::Streams(_, slow) => step as f64 / slow as f64,
                    Pace::Steady(ticks) => step as f64 / ticks as f64,
                    Pace::Answered(..) => 0.0,
                };
            }
            if let Pace::Answered(all, ticks) = self.pace
                && self.now.get() >= self.handled.0 + ticks
            {
                self.waiting = all as f64;
            }
        }

        /// One round. Returns how many frames it handled.
        fn round(&mut self) -> usize {
            self.arrive();
            let frames = (self.waiting as u64).min(QUANTUM * self.connections);
            self.waiting -= frames as f64;
            if frames > 0 {
                self.handled = (self.now.get(), frames);
            }
            self.now
                .set(self.now.get() + HANDLED * frames + LOOK * self.connections);
            frames as usize
        }

        /// Ticks per frame of so many rounds, with what `pauses` says, if there are any.
        fn run(mut self, mut pauses: Option<&mut Pauses>, rounds: u32) -> f64 {
            let mut all = 0;
            for _ in 0..rounds {
                let clock = || self.now.replace(self.now.get() + 16);
                if let Some(pauses) = &mut pauses {
                    pauses.before_round(clock);
                }
                let frames = self.round();
                if let Some(pauses) = &mut pauses {
                    pauses.after_round(frames, self.connections as usize, || self.now.get());
                }
                all += frames;
            }
            self.now.get() as f64 / all as f64
        }
    }

    /// Ticks per frame without pauses and with them.
    fn both(pace: Pace, connections: u64, rounds: u32) -> [f64; 2] {
        let without = Model::new(pace, connections).run(None, rounds);
        let mut pauses = Pauses::default();
        let with = Model::new(pace, connections).run(Some(&mut pauses), rounds);
        [without, with]
    }

    #[test]
    fn sources_that_stream_keep_a_lead() {
        for connections in [2, 4, 10] {
            for slow in [80, 150] {
                let [without, with] = both(Pace::Streams(20, slow), connections, 1 << 17);
                assert!(without > 0.9 * slow as f64, "{without}");
                assert!(with < 0.7 * without, "{connections}, {slow}: {with}");
            }
        }
    }

    #[test]
    fn sources_that_wait_for_answers_are_not_delayed() {
        for connections in [2, 64] {
            for window in [1, 16] {
                let [without, with] = both(Pace::Answered(window * connections, 700), connections, 1 << 20);
                assert!(
                    with < 1.03 * without,
                    "{connections}, {window}: {with}, {without}"
                );
            }
        }
    }

    #[test]
    fn steady_sources_are_seldom_delayed() {
        for ticks in [30, 100, 1000] {
            let mut pauses = Pauses::default();
            let mut model = Model::new(Pace::Steady(ticks), 10);
            let (mut paused, rounds) = (0, 1 << 20);
            for _ in 0..rounds {
                paused += u32::from(pauses.pause > 0);
                let clock = || model.now.replace(model.now.get() + 16);
                pauses.before_round(clock);
                let frames = model.round();
                pauses.after_round(frames, 10, || model.now.get());
            }
            assert!(paused < rounds / 200, "{ticks}: {paused}");
        }
    }

    #[test]
    fn the_end_of_a_stream_ends_the_pauses() {
        let mut pauses = Pauses::default();
        let model = Model::new(Pace::Streams(20, 80), 10);
        model.run(Some(&mut pauses), 1 << 12);
        assert!(pauses.pause > 0);
        // The first round may have followed one that had a lead.
        for _ in 0..2 {
            pauses.before_round(|| u64::MAX);
            pauses.after_round(0, 10, || u64::MAX);
        }
        assert_eq!(pauses.pause, 0);
        pauses.before_round(|| unreachable!("there is no pause"));
    }

    #[test]
    fn a_clock_that_stands_still_makes_no_pauses() {
        let mut pauses = Pauses::default();
        for _ in 0..1 << 16 {
            pauses.before_round(|| 0);
            pauses.after_round(100, 10, || 0);
            assert_eq!(pauses.pause, 0);
        }
        // A clock that stops.
        pauses.pause = Pauses::PAUSE;
        let readings = Cell::new(0);
        pauses.before_round(|| {
            readings.set(readings.get() + 1);
            0
        });
        assert_eq!(readings.get(), Pauses::PAUSE);
    }
}
