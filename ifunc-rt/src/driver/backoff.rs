//! Waiting without burning a core: poll again at once for a while, then park until the peer rings.

use std::time::{Duration, Instant};

/// The time in `duration` from now; centuries, for callers that mean never.
pub(crate) fn after(duration: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(LONG)
}

/// The time between two attempts to reach a target that is not there.
pub(crate) const RETRY: Duration = Duration::from_millis(5);

/// What to do after a poll in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again, without a pause: a pause costs as much as a cache line's way.
    Poll,
    /// Park until something comes.
    Park,
    /// The deadline has passed; the time since the clock was first read.
    TimedOut(Duration),
}

/// Polls in vain of one waiter.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Polls between two clock reads, which cost more than a poll. Bounds how late a waiter parks.
    pace: u32,
    /// How long it polls before it parks.
    spin: Duration,
    deadline: Option<Instant>,
    polls: u32,
    began: Option<Instant>,
    idle_since: Option<Instant>,
    /// When the clock was last read, if no poll has found anything since.
    last: Option<Instant>,
}

impl Backoff {
    /// Without a spin, the first poll in vain ends in sleep.
    pub(crate) fn new(pace: u32, spin: Duration) -> Self {
        Self {
            pace: if spin.is_zero() { 1 } else { pace },
            spin,
            deadline: None,
            polls: 0,
            began: None,
            idle_since: None,
            last: None,
        }
    }

    /// A source's, which gives up at `deadline`.
    pub(super) fn until(deadline: Instant, spin: Duration) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::new(32, spin)
        }
    }

    /// A poll found something: where something came, more may come. The clock is read as often as before: what comes for ever
    /// does not put off the deadline.
    pub(crate) fn reset(&mut self) {
        self.idle_since = None;
        self.last = None;
    }

    /// A poll found nothing.
    pub(crate) fn next(&mut self) -> Next {
        // Time stands still in a model, and is of no use where there is neither a spin nor a deadline.
        if cfg!(loom) || self.spin.is_zero() && self.deadline.is_none() {
            return Next::Park;
        }
        self.polls += 1;
        if self.polls < self.pace {
            return Next::Poll;
        }
        let now = Instant::now();
        if let Some(waited) = self.timed_out_at(now) {
            return Next::TimedOut(waited);
        }
        let last = self.last.replace(now).unwrap_or(now);
        // A thread that was kept off its processor sleeps: others need the processor, and who sleeps is woken ahead of them.
        let was_kept = now - last > self.spin / 2;
        if !was_kept && now - *self.idle_since.get_or_insert(now) < self.spin {
            self.polls = 0;
            return Next::Poll;
        }
        Next::Park
    }

    /// The time it has waited, if the deadline has passed.
    pub(super) fn timed_out(&mut self) -> Option<Duration> {
        if cfg!(loom) {
            return None;
        }
        self.timed_out_at(Instant::now())
    }

    fn timed_out_at(&mut self, now: Instant) -> Option<Duration> {
        let began = *self.began.get_or_insert(now);
        self.deadline
            .is_some_and(|deadline| now >= deadline)
            .then(|| now - began)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_a_spin_the_first_poll_in_vain_parks() {
        let mut backoff = Backoff::new(64, Duration::ZERO);
        for _ in 0..3 {
            assert_eq!(backoff.next(), Next::Park);
            backoff.reset();
        }
        let mut backoff = Backoff::new(64, Duration::from_secs(600));
        assert!((0..64).all(|_| backoff.next() == Next::Poll));
    }

    #[test]
    fn polls_that_find_something_do_not_put_off_the_deadline() {
        let mut backoff = Backoff::until(Instant::now(), Duration::from_secs(1));
        let polls = (0..1000).take_while(|_| {
            backoff.reset();
            backoff.next() == Next::Poll
        });
        assert!(polls.count() < 100);
    }
}
