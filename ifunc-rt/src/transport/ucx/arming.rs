//! Arming: how the descriptor becomes readable for the next event, or at once where UCX cannot promise that.

use std::time::Duration;

use ::ucx::Status;

use super::engine::Locked;

/// Rounds of progress before a sleep. Peers that send without a pause would otherwise keep the lock for as long as they do.
const ROUNDS: usize = 64;
/// The same, where UCX was stuck before.
const FEW_ROUNDS: usize = 8;
/// Rounds of progress in succession in which nothing happens, before the worker is armed where an endpoint was closed or arming found
/// something to do. Why one is not enough, [`Worker::arm`](::ucx::Worker::arm) says.
pub(super) const QUIET_ROUNDS: u32 = 2;

/// Quiet rounds that the worker needs before it is armed, where it needed `due` of them before a round of progress in which something `happened`
/// or not.
pub(super) fn due_after(due: u32, happened: bool) -> u32 {
    match (due, happened) {
        (0, _) => 0,
        (_, true) => QUIET_ROUNDS,
        (due, false) => due - 1,
    }
}

/// Why the worker is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unarmed<E> {
    /// There were events in every round.
    Busy,
    /// UCX has messages that its peers' queues do not take; over shared memory it gets no event when they do.
    Stuck,
    /// UCX refused.
    Refused(E),
}

impl Locked<'_> {
    /// Makes the descriptor readable by the next event; what has happened is dispatched first. Where UCX refuses, it becomes readable
    /// now, so that the thread that sleeps next wakes at once and polls. So it does where that takes back what has woken a target which
    /// sleeps on the same worker.
    pub(super) fn arm(&mut self) {
        match self.attached() {
            Some(attached) => self.arm_attached(attached),
            None => self.arm_own(),
        }
        if let Some(acceptor) = &mut self.state.acceptor {
            acceptor.is_woken = false;
            self.wake_the_target();
        }
    }

    /// As [`arm`](Self::arm), where the worker is the engine's own.
    fn arm_own(&mut self) {
        self.watch();
        self.send_gathered();
        let armed = self.try_arm();
        let Err(why) = armed else {
            return;
        };
        if let Unarmed::Refused(status) = why {
            // Logged once: it comes back with every sleep.
            if !std::mem::replace(&mut self.state.unarmed, true) {
                tracing::warn!(%status, "UCX cannot be slept on: waiting for it takes all of a processor's time");
            }
        }
        self.wake();
    }

    /// Arms the worker, and counts how often in succession it was stuck.
    pub(super) fn try_arm(&mut self) -> Result<(), Unarmed<Status>> {
        let (armed, stuck) = try_arm(
            self,
            self.state.quiet_rounds_due,
            self.state.stuck,
            |locked| locked.worker.arm(),
            Locked::progress,
        );
        self.state.stuck = stuck;
        armed
    }

    /// How long a thread pauses before the next poll where UCX is stuck: without a pause it would take the processor from the peer
    /// that is to make room. Zero where UCX is not stuck.
    pub(super) fn backoff(&self) -> Duration {
        backoff(self.state.stuck)
    }

    /// Makes the descriptor readable: the thread that sleeps next wakes at once.
    pub(super) fn wake(&mut self) {
        if let Err(status) = self.worker.signal() {
            tracing::warn!(%status, "UCX's descriptor cannot be signalled: events may be seen late");
        }
    }
}

/// Arms, after so many rounds of progress in succession in which nothing happens as are due; where arming finds something to do,
/// [`QUIET_ROUNDS`] are due before the next attempt. `progress` says whether anything happened. Returns how often in succession it was stuck,
/// too, which it was `stuck` times before.
fn try_arm<T, E>(
    what: &mut T,
    mut due: u32,
    stuck: u32,
    mut arm: impl FnMut(&mut T) -> Result<bool, E>,
    mut progress: impl FnMut(&mut T) -> bool,
) -> (Result<(), Unarmed<E>>, u32) {
    let rounds = if stuck == 0 { ROUNDS } else { FEW_ROUNDS };
    let mut some = false;
    for _ in 0..rounds {
        if due > 0 {
            let happened = progress(what);
            some |= happened;
            due = due_after(due, happened);
            if due > 0 {
                continue;
            }
        }
        match arm(what) {
            Ok(true) => return (Ok(()), 0),
            Ok(false) => due = QUIET_ROUNDS,
            Err(status) => return (Err(Unarmed::Refused(status)), 0),
        }
    }
    match some {
        true => (Err(Unarmed::Busy), 0),
        false => (Err(Unarmed::Stuck), stuck.saturating_add(1)),
    }
}

/// The pause after so many attempts in succession that found UCX stuck: short at first, because a peer that works makes room in
/// microseconds.
fn backoff(stuck: u32) -> Duration {
    const FIRST: Duration = Duration::from_micros(50);
    match stuck {
        0 => Duration::ZERO,
        n => FIRST * (1 << (n / 8).min(4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arming says.
    type Said = Result<bool, &'static str>;

    /// Arms where so many rounds are due, the first `busy` attempts find something to do, an event comes in each round of `some`, and the
    /// attempt after the busy ones says `then`. With it, how many rounds of progress there were.
    fn after(
        due: u32,
        busy: usize,
        some: std::ops::Range<usize>,
        then: Said,
    ) -> (Result<(), Unarmed<&'static str>>, usize) {
        let (mut attempts, mut rounds) = (0, 0);
        let arm = |_: &mut ()| {
            attempts += 1;
            if attempts <= busy { Ok(false) } else { then }
        };
        let (armed, stuck) = try_arm(&mut (), due, 0, arm, |()| {
            rounds += 1;
            some.contains(&(rounds - 1))
        });
        assert_eq!(stuck, u32::from(armed == Err(Unarmed::Stuck)));
        (armed, rounds)
    }

    #[test]
    fn events_before_a_sleep_are_dispatched_in_bounded_rounds() {
        let last = ROUNDS - 1..ROUNDS;
        assert_eq!(after(2, ROUNDS / 2 - 1, 0..0, Ok(true)), (Ok(()), ROUNDS));
        assert_eq!(after(2, usize::MAX, last, Ok(true)), (Err(Unarmed::Busy), ROUNDS));
        assert_eq!(
            after(2, usize::MAX, 0..0, Ok(true)),
            (Err(Unarmed::Stuck), ROUNDS)
        );
    }

    #[test]
    fn after_a_close_it_is_armed_only_after_two_rounds_in_succession_in_which_nothing_happened() {
        assert_eq!(after(2, 0, 0..0, Ok(true)), (Ok(()), 2));
        assert_eq!(after(2, 0, 0..3, Ok(true)), (Ok(()), 5));
        assert_eq!(after(2, 0, 1..2, Ok(true)), (Ok(()), 4), "not in succession");
        // One was before.
        assert_eq!(after(1, 0, 0..0, Ok(true)), (Ok(()), 1));
        assert_eq!(after(1, 0, 0..1, Ok(true)), (Ok(()), 3));
        assert_eq!(after(2, 0, 0..usize::MAX, Ok(true)), (Err(Unarmed::Busy), ROUNDS));
    }

    #[test]
    fn without_a_close_it_is_armed_at_once() {
        assert_eq!(after(0, 0, 0..0, Ok(true)), (Ok(()), 0));
        // Unless arming finds something to do.
        assert_eq!(after(0, 1, 0..0, Ok(true)), (Ok(()), 2));
        assert_eq!(after(0, 1, 1..2, Ok(true)), (Ok(()), 4));
        assert_eq!(after(2, 1, 2..3, Ok(true)), (Ok(()), 5));
    }

    #[test]
    fn where_it_was_stuck_before_there_are_fewer_rounds() {
        let mut rounds = 0;
        let never = |_: &mut ()| Ok::<_, ()>(false);
        let armed = try_arm(&mut (), 2, 7, never, |()| {
            rounds += 1;
            false
        });
        assert_eq!((armed, rounds), ((Err(Unarmed::Stuck), 8), FEW_ROUNDS));
        // Whatever else it is, it is not stuck any more.
        assert_eq!(try_arm(&mut (), 2, 7, never, |()| true), (Err(Unarmed::Busy), 0));
        assert_eq!(
            try_arm(&mut (), 2, 7, |()| Ok::<_, ()>(true), |()| false),
            (Ok(()), 0)
        );
        let refused = try_arm(&mut (), 2, 7, |()| Err("no"), |()| false);
        assert_eq!(refused, (Err(Unarmed::Refused("no")), 0));
    }

    #[test]
    fn a_refusal_is_not_taken_for_armed() {
        let refused = Err(Unarmed::Refused("no"));
        assert_eq!(after(2, 3, 0..1, Err("no")), (refused, 9));
    }

    #[test]
    fn pauses_grow_and_stay_short() {
        assert_eq!(backoff(0), Duration::ZERO);
        assert_eq!(backoff(1), Duration::from_micros(50));
        assert!((1..1000).all(|n| backoff(n) <= backoff(n + 1)));
        assert_eq!(backoff(u32::MAX), Duration::from_micros(800));
    }
}
