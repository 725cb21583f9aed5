//! Pauses between the rounds of a target that polls several connections.

/// Lets frames gather before a round of polls, where that makes their sources faster.
///
/// A target that is the faster side finds few frames of each connection in a round, and reads slots close to those that are being written.
/// Their cache lines then go back and forth and the sources wait for them, as those of a stream over one connection would
/// (`transport/shm/ring/stream.rs`). Once the sources have a lead, a round finds many frames of each connection, and they write
/// further on meanwhile. Rounds that find fewer are put off, so that the lead lasts.
///
/// Sources that wait for answers look the same, and a pause only delays them. So the target tries: it measures rounds without pauses, lets
/// the sources gain a lead by longer and longer pauses, and measures rounds again. While it handles many more frames in a tick it goes on, up to
/// the next attempt. If it does not, twice as many frames pass before that one. A connection whose source waits for answers, beside others that
/// stream, is delayed with them.
pub(super) struct Pauses {
    phase: Phase,
    /// How long the phase lasts: so many frames more without pauses, so many rounds with pauses.
    left: u64,
    /// When the phase began, and the frames that its rounds have handled.
    began: u64,
    frames: u64,
    /// Of rounds without pauses, at the last attempt.
    without: Rate,
    /// Measurements in succession that the pauses have passed.
    passed: u32,
    /// Frames between an attempt in vain and the next one.
    interval: u64,
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
    Unpaused,
    /// Rounds without pauses, which are measured.
    MeasuresUnpaused,
    /// Rounds after pauses, of which each is twice as long as the last one.
    GivesLead,
    /// Rounds that are put off while there is no lead, which are measured.
    MeasuresLead,
}

/// What a round has handled.
#[derive(Clone, Copy, Default)]
pub(super) struct Round {
    frames: usize,
    /// Connections that had any.
    busy: usize,
}

impl Round {
    /// A connection had so many frames.
    #[inline]
    pub(super) fn add(&mut self, frames: usize) {
        self.frames += frames;
        self.busy += usize::from(frames > 0);
    }

    /// Frames of all connections.
    #[inline]
    pub(super) fn frames(self) -> usize {
        self.frames
    }

    /// Whether the connections had so many that their sources have a lead.
    fn has_lead(self) -> bool {
        self.busy > 0 && self.frames >= Pauses::LEAD * self.busy
    }
}

/// Frames in so many ticks.
#[derive(Clone, Copy, Default)]
struct Rate {
    frames: u64,
    ticks: u64,
}

impl Rate {
    /// Whether sources that send so few wait for something else: for answers, or for what they send.
    fn is_slow(self) -> bool {
        self.frames < self.ticks / Pauses::PER_FRAME
    }

    /// How many percent of the other one it is.
    fn percent_of(self, other: Self) -> u128 {
        let product = |frames: u64, ticks: u64| u128::from(frames) * u128::from(ticks);
        100 * product(self.frames, other.ticks) / product(other.frames, self.ticks).max(1)
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            phase: Phase::Unpaused,
            left: Self::SHORT,
            began: 0,
            frames: 0,
            without: Rate::default(),
            passed: 0,
            interval: Self::FIRST_INTERVAL,
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
    const LEAD: usize = 32;
    /// Ticks for each frame, at most: 0.2 microseconds.
    const PER_FRAME: u64 = 512;
    /// Frames before an attempt that does not follow one in vain.
    const SHORT: u64 = 1 << 10;
    /// Frames after the first attempt in vain, and at most.
    const FIRST_INTERVAL: u64 = 1 << 14;
    const MOST_INTERVAL: u64 = 1 << 23;
    /// Frames without pauses that are measured.
    const MEASURED: u64 = 1 << 12;
    /// Rounds that are measured with pauses.
    const ROUNDS: u64 = 64;
    /// A measurement ends early if it shows a loss after so many rounds.
    const EARLY: u64 = 24;
    /// Percent of the frames per tick without pauses that the first measurement must show; later ones must show no loss.
    const GAIN: u128 = 125;
    /// Measurements before the next attempt.
    const MEASUREMENTS: u32 = 16;

    /// Waits before a round, unless there is a lead, or enough time has passed since the last round. `ticks` reads a clock of some two gigahertz.
    #[inline]
    pub(super) fn before_round(&mut self, ticks: impl Fn() -> u64) {
        if self.has_lead {
            return;
        }
        // Bounds the wait where the clock stands still.
        for _ in 0..self.pause {
            if ticks().wrapping_sub(self.ended) >= self.pause {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// A round has ended.
    #[inline]
    pub(super) fn after_round(&mut self, round: Round, ticks: impl Fn() -> u64) {
        let frames = round.frames as u64;
        self.frames += frames;
        let done = if self.pause > 0 { 1 } else { frames };
        self.left = self.left.saturating_sub(done);
        if self.left == 0 || self.pause > 0 {
            self.plan(round, ticks());
        }
    }

    /// The target has another connection: what it measured tells nothing any more.
    #[cold]
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The target sleeps, and what it was measuring would count the sleep. The next attempt comes as after the last one.
    pub(super) fn interrupt(&mut self) {
        if self.phase != Phase::Unpaused {
            let left = if self.passed > 0 {
                Self::SHORT
            } else {
                self.interval
            };
            self.begin(Phase::Unpaused, left, 0);
        }
    }

    /// Plans the next round, after one that ended now.
    fn plan(&mut self, round: Round, now: u64) {
        self.ended = now;
        let frames = round.frames as u64;
        let last = std::mem::replace(&mut self.last, frames);
        let was_paused = !std::mem::replace(&mut self.has_lead, round.has_lead());
        let in_pause = Rate {
            frames,
            ticks: self.pause,
        };
        match self.phase {
            Phase::Unpaused | Phase::MeasuresUnpaused => {}
            Phase::GivesLead | Phase::MeasuresLead if was_paused && frames == 0 => {
                return self.begin_unpaused();
            }
            Phase::GivesLead if self.has_lead => self.left = 0,
            // Sources that wait for answers send no more in a longer pause, and a stream little more in the first ones.
            Phase::GivesLead
                if in_pause.is_slow() && self.pause > 2 * Self::PAUSE && 2 * frames < 3 * last =>
            {
                return self.give_up();
            }
            Phase::GivesLead => self.pause *= 2,
            Phase::MeasuresLead => {
                let is_late = self.left < Self::ROUNDS - Self::EARLY;
                if is_late && !self.gains(100) {
                    return self.give_up();
                }
                if was_paused && !self.has_lead {
                    self.pause = (2 * self.pause).min(Self::MOST);
                }
            }
        }
        if self.left == 0 {
            self.end_phase();
        }
    }

    fn end_phase(&mut self) {
        match self.phase {
            Phase::Unpaused => self.begin(Phase::MeasuresUnpaused, Self::MEASURED, 0),
            Phase::MeasuresUnpaused => {
                self.without = self.measured();
                // Where the clock stands still, nothing can be measured.
                if self.has_lead || self.without.is_slow() || self.without.ticks == 0 {
                    return self.begin_unpaused();
                }
                self.passed = 0;
                self.begin(Phase::GivesLead, Self::LEADS, Self::PAUSE);
            }
            Phase::GivesLead => {
                self.begin(Phase::MeasuresLead, Self::ROUNDS, self.pause.min(Self::MOST));
            }
            Phase::MeasuresLead if self.passed == 0 && !self.gains(Self::GAIN) => self.give_up(),
            Phase::MeasuresLead => {
                self.passed += 1;
                self.interval = Self::FIRST_INTERVAL;
                match self.passed < Self::MEASUREMENTS {
                    true => self.begin(Phase::MeasuresLead, Self::ROUNDS, self.pause),
                    false => self.begin_unpaused(),
                }
            }
        }
    }

    /// The frames per tick of this phase.
    fn measured(&self) -> Rate {
        Rate {
            frames: self.frames,
            ticks: self.ended.wrapping_sub(self.began),
        }
    }

    /// Whether at least so many percent of the frames are handled in a tick that are handled without pauses.
    fn gains(&self, percent: u128) -> bool {
        self.measured().percent_of(self.without) >= percent
    }

    /// After an attempt in vain: lets twice as many frames pass as after the one before. After a gain that did not last: lets a few pass.
    fn give_up(&mut self) {
        if self.passed > 0 {
            return self.begin_unpaused();
        }
        self.begin(Phase::Unpaused, self.interval, 0);
        self.interval = (2 * self.interval).min(Self::MOST_INTERVAL);
    }

    fn begin_unpaused(&mut self) {
        self.begin(Phase::Unpaused, Self::SHORT, 0);
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

    use super::{Pauses, Phase, Round};

    /// Frames of a connection that a round handles at most, and those that are a lead of its source.
    const QUANTUM: u64 = 64;
    const AHEAD: u64 = 20;
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
        /// So many in all are under way, and all are sent again so many ticks after the end of the round that handled them.
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
        /// When the last round ended that handled frames.
        handled: u64,
        /// Ticks of pauses.
        paused: u64,
    }

    impl Model {
        fn new(pace: Pace, connections: u64) -> Self {
            Self {
                now: Cell::new(0),
                pace,
                connections,
                counted: 0,
                waiting: 0.0,
                handled: 0,
                paused: 0,
            }
        }

        fn pass(&self, ticks: u64) -> u64 {
            self.now.replace(self.now.get() + ticks)
        }

        fn arrive(&mut self) {
            let (fast, slow) = match self.pace {
                Pace::Streams(fast, slow) => (fast, slow),
                Pace::Steady(ticks) => (ticks, ticks),
                Pace::Answered(all, ticks) => {
                    if self.now.get() >= self.handled + ticks {
                        self.waiting = all as f64;
                    }
                    return;
                }
            };
            while self.counted < self.now.get() {
                let step = (self.now.get() - self.counted).min(64);
                self.counted += step;
                let has_lead = self.waiting > (AHEAD * self.connections) as f64;
                self.waiting += step as f64 / if has_lead { fast } else { slow } as f64;
            }
        }

        fn round(&mut self) -> Round {
            self.arrive();
            let frames = (self.waiting as u64).min(QUANTUM * self.connections);
            self.waiting -= frames as f64;
            self.pass(HANDLED * frames + LOOK * self.connections);
            if frames > 0 {
                self.handled = self.now.get();
            }
            let mut round = Round::default();
            for at in 0..self.connections {
                round.add(((frames + at) / self.connections) as usize);
            }
            round
        }

        /// Ticks per frame of so many rounds, with what `pauses` says.
        fn run(&mut self, pauses: &mut Pauses, rounds: u32) -> f64 {
            let (began, mut all) = (self.now.get(), 0);
            for _ in 0..rounds {
                let before = self.now.get();
                pauses.before_round(|| self.pass(16));
                self.paused += self.now.get() - before;
                let round = self.round();
                pauses.after_round(round, || self.now.get());
                all += round.frames();
            }
            (self.now.get() - began) as f64 / all as f64
        }

        /// Which part of the time is spent in pauses, after the first attempts.
        fn time_paused(mut self) -> f64 {
            let mut pauses = Pauses::default();
            self.run(&mut pauses, 1 << 18);
            let (paused, began) = (self.paused, self.now.get());
            self.run(&mut pauses, 1 << 19);
            (self.paused - paused) as f64 / (self.now.get() - began) as f64
        }

        /// Without pauses.
        fn unpaused(&mut self, rounds: u32) -> f64 {
            let mut never = Pauses {
                left: u64::MAX,
                ..Pauses::default()
            };
            self.run(&mut never, rounds)
        }
    }

    #[test]
    fn sources_that_stream_keep_a_lead() {
        for connections in [2, 4, 10] {
            for slow in [80, 150] {
                let pace = Pace::Streams(20, slow);
                let without = Model::new(pace, connections).unpaused(1 << 12);
                let with = Model::new(pace, connections).run(&mut Pauses::default(), 1 << 17);
                assert!(without > 0.9 * slow as f64, "{without}");
                assert!(with < 0.7 * without, "{connections}, {slow}: {with}");
            }
        }
    }

    #[test]
    fn sources_that_wait_for_answers_are_not_delayed() {
        for connections in [2, 64] {
            for window in [1, 2, 4, 7, 16] {
                let pace = Pace::Answered(window * connections, 700);
                let without = Model::new(pace, connections).unpaused(1 << 12);
                let (mut model, mut pauses) = (Model::new(pace, connections), Pauses::default());
                model.run(&mut pauses, 1 << 18);
                let with = model.run(&mut pauses, 1 << 19);
                assert!(
                    with < 1.02 * without,
                    "{connections}, {window}: {with}, {without}"
                );
            }
        }
    }

    #[test]
    fn steady_sources_are_seldom_delayed() {
        for ticks in [30, 100, 1000] {
            let paused = Model::new(Pace::Steady(ticks), 10).time_paused();
            assert!(paused < 0.02, "{ticks}: {paused}");
        }
    }

    /// Of ten sources that stream and have a lead.
    fn with_lead() -> Pauses {
        let (mut model, mut pauses) = (Model::new(Pace::Streams(20, 80), 10), Pauses::default());
        while pauses.phase != Phase::MeasuresLead || pauses.passed == 0 {
            model.run(&mut pauses, 1);
        }
        pauses
    }

    #[test]
    fn the_end_of_a_stream_ends_the_pauses() {
        let mut pauses = with_lead();
        // The first round may have followed one that had a lead.
        for _ in 0..2 {
            pauses.before_round(|| u64::MAX);
            pauses.after_round(Round::default(), || u64::MAX);
        }
        assert_eq!(pauses.pause, 0);
        pauses.before_round(|| unreachable!("there is no pause"));
    }

    #[test]
    fn streams_that_become_requests_end_the_pauses() {
        let mut pauses = with_lead();
        let mut model = Model::new(Pace::Answered(160, 700), 10);
        model.run(&mut pauses, 2 * Pauses::ROUNDS as u32);
        assert_eq!(pauses.pause, 0);
    }

    #[test]
    fn a_target_that_sleeps_often_keeps_the_interval_of_its_attempts() {
        let (mut model, mut pauses) = (Model::new(Pace::Answered(20, 700), 10), Pauses::default());
        model.run(&mut pauses, 1 << 18);
        let interval = pauses.interval;
        assert!(interval > 2 * Pauses::FIRST_INTERVAL);
        let before = model.paused;
        for _ in 0..100 {
            model.run(&mut pauses, 1 << 10);
            pauses.interrupt();
        }
        assert!(pauses.interval >= interval && model.paused - before <= 4 * Pauses::MOST);
    }

    #[test]
    fn a_clock_that_stands_still_makes_no_pauses() {
        let mut pauses = Pauses::default();
        let mut round = Round::default();
        round.add(10);
        for _ in 0..1 << 16 {
            pauses.before_round(|| 0);
            pauses.after_round(round, || 0);
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
