//! How the bell is made to ring: for what happens next, or at once where UCX cannot promise that.

use std::time::Duration;

use ucx_sys::{UCS_ERR_BUSY, UCS_OK, ucs_status_t};

use super::engine::Locked;

/// How often what had happened is looked at before a sleep. Peers that send without a pause would keep the lock for as long
/// as they do.
const ROUNDS: usize = 64;
/// The same, where it was in vain before.
const FEW_ROUNDS: usize = 8;

/// Why the bell is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unarmed {
    /// There was something to do in every round, and it was done.
    Busy,
    /// There was, and nothing came of it. UCX has messages that its peers' queues have no room for; over shared memory nobody
    /// says when there is some.
    Stuck,
    /// UCX refused.
    Refused(ucs_status_t),
}

impl Locked<'_> {
    /// Makes the bell ring for whatever happens from now on. What had happened before is looked at first. Where that cannot be
    /// had, the bell is rung, so that whoever sleeps next wakes at once and looks.
    pub(super) fn arm(&mut self) {
        if let Some(borrowed) = self.borrowed() {
            return self.arm_borrowed(borrowed);
        }
        self.watch();
        let armed = self.try_arm();
        let Err(why) = armed else {
            return;
        };
        if let Unarmed::Refused(status) = why {
            let status = self.ucx().status(status);
            // Said once: it comes back with every sleep.
            if !std::mem::replace(&mut self.state.unarmed, true) {
                tracing::warn!(%status, "UCX cannot be slept on: waiting for it takes all of a processor's time");
            }
        }
        self.wake();
    }

    /// Arms UCX's descriptor, and keeps count of how often it was in vain.
    pub(super) fn try_arm(&mut self) -> Result<(), Unarmed> {
        let rounds = if self.state.stuck == 0 { ROUNDS } else { FEW_ROUNDS };
        let armed = try_arm(self, rounds, Locked::arm_worker, Locked::progress);
        self.state.stuck = match armed {
            Err(Unarmed::Stuck) => self.state.stuck.saturating_add(1),
            _ => 0,
        };
        armed
    }

    /// How long whoever would sleep, and was rung for because UCX is stuck, pauses before it looks again. Without a pause it would
    /// take the processor from the peer that is to make room. Nothing where UCX is not stuck.
    pub(super) fn nap(&self) -> Duration {
        nap(self.state.stuck)
    }

    /// Rings the bell: whoever sleeps next wakes at once.
    pub(super) fn wake(&mut self) {
        if let Err(status) = self.ring() {
            tracing::warn!(%status, "UCX's descriptor cannot be rung: what happens may be seen late");
        }
    }
}

/// Arms, and lets UCX work as often as something had happened before. `progress` says whether that did anything.
fn try_arm<T>(
    what: &mut T,
    rounds: usize,
    mut arm: impl FnMut(&mut T) -> ucs_status_t,
    mut progress: impl FnMut(&mut T) -> bool,
) -> Result<(), Unarmed> {
    let mut some = false;
    for _ in 0..rounds {
        match arm(what) {
            UCS_OK => return Ok(()),
            UCS_ERR_BUSY => some |= progress(what),
            status => return Err(Unarmed::Refused(status)),
        }
    }
    Err(if some { Unarmed::Busy } else { Unarmed::Stuck })
}

/// The pause after so many attempts in succession that found UCX stuck: short at first, because a peer that works makes room in
/// microseconds.
fn nap(stuck: u32) -> Duration {
    const FIRST: Duration = Duration::from_micros(50);
    match stuck {
        0 => Duration::ZERO,
        n => FIRST * (1 << (n / 8).min(4)),
    }
}

#[cfg(test)]
mod tests {
    use ucx_sys::UCS_ERR_IO_ERROR;

    use super::*;

    /// Arms where the first `busy` attempts find something to do, of which something comes in round `some`, and the next says
    /// `then`.
    fn after(busy: usize, some: usize, then: ucs_status_t) -> (Result<(), Unarmed>, usize) {
        let (mut attempts, mut rounds) = (0, 0);
        let arm = |_: &mut ()| {
            attempts += 1;
            if attempts <= busy { UCS_ERR_BUSY } else { then }
        };
        let armed = try_arm(&mut (), ROUNDS, arm, |()| {
            rounds += 1;
            rounds == some
        });
        (armed, rounds)
    }

    #[test]
    fn what_happened_before_is_looked_at_but_not_for_ever() {
        assert_eq!(after(0, 0, UCS_OK), (Ok(()), 0));
        assert_eq!(after(ROUNDS - 1, 0, UCS_OK), (Ok(()), ROUNDS - 1));
        assert_eq!(after(usize::MAX, ROUNDS, UCS_OK), (Err(Unarmed::Busy), ROUNDS));
        assert_eq!(after(usize::MAX, 0, UCS_OK), (Err(Unarmed::Stuck), ROUNDS));
    }

    #[test]
    fn what_ucx_refuses_is_not_taken_for_armed() {
        let refused = Err(Unarmed::Refused(UCS_ERR_IO_ERROR));
        assert_eq!(after(3, 1, UCS_ERR_IO_ERROR), (refused, 3));
    }

    #[test]
    fn pauses_grow_and_stay_short() {
        assert_eq!(nap(0), Duration::ZERO);
        assert_eq!(nap(1), Duration::from_micros(50));
        assert!((1..1000).all(|n| nap(n) <= nap(n + 1)));
        assert_eq!(nap(u32::MAX), Duration::from_micros(800));
    }
}
