//! Waiting without burning a core: looking again at once for a while, then sleeping until the target rings.

use std::time::{Duration, Instant};

/// What to do when there was nothing.
pub(super) enum Next {
    /// Look again.
    Look,
    /// Sleep until something comes.
    Sleep,
    /// The deadline has passed; this is how long it was waited.
    GiveUp(Duration),
}

/// The time in `duration` from now; centuries, for those who mean never.
pub(super) fn after(duration: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(LONG)
}

/// One wait.
pub(super) struct Patience {
    deadline: Instant,
    looks: u32,
    /// When the clock was first looked at.
    began: Option<Instant>,
    /// When it began to look.
    looking: Option<Instant>,
}

impl Patience {
    /// Longer than a wake-up takes, so that a short wait never sleeps.
    pub(super) const SPIN: Duration = Duration::from_micros(60);
    /// How often a target that is not there is looked for.
    pub(super) const SLICE: Duration = Duration::from_millis(5);
    /// Looks between two looks at the clock, which costs more.
    const LOOKS: u32 = 32;

    pub(super) fn until(deadline: Instant) -> Self {
        Self {
            deadline,
            looks: 0,
            began: None,
            looking: None,
        }
    }

    /// Looks again for a while before it sleeps.
    pub(super) fn restart(&mut self) {
        self.looks = 0;
        self.looking = None;
    }

    pub(super) fn next(&mut self) -> Next {
        if cfg!(loom) {
            // Time stands still in the model.
            return Next::Sleep;
        }
        self.looks += 1;
        if self.looks < Self::LOOKS {
            // No pause: it would cost as much as a cache line's way.
            return Next::Look;
        }
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if now >= self.deadline {
            return Next::GiveUp(now - began);
        }
        if now - *self.looking.get_or_insert(now) < Self::SPIN {
            self.looks = 0;
            return Next::Look;
        }
        Next::Sleep
    }

    /// How long it was waited, if the deadline has passed.
    pub(super) fn is_over(&mut self) -> Option<Duration> {
        if cfg!(loom) {
            return None;
        }
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        (now >= self.deadline).then(|| now - began)
    }
}
