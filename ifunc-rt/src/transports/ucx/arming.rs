//! How the bell is made to ring: for what happens next, or at once where UCX cannot promise that.

use ucx_sys::{UCS_ERR_BUSY, UCS_OK, ucs_status_t};

use super::engine::Locked;

/// How often what had happened is looked at before a sleep. Peers that send without a pause would keep the lock for as long
/// as they do.
const ROUNDS: usize = 64;

/// Why the bell is not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unarmed {
    /// Something happened in every round.
    Busy,
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
        let Err(why) = try_arm(self, Locked::arm_worker, |locked| {
            locked.progress();
        }) else {
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

    /// Rings the bell: whoever sleeps next wakes at once.
    pub(super) fn wake(&mut self) {
        if let Err(status) = self.ring() {
            tracing::warn!(%status, "UCX's descriptor cannot be rung: what happens may be seen late");
        }
    }
}

/// Arms, and lets UCX work as often as something had happened before.
pub(super) fn try_arm<T>(
    what: &mut T,
    mut arm: impl FnMut(&mut T) -> ucs_status_t,
    mut progress: impl FnMut(&mut T),
) -> Result<(), Unarmed> {
    for _ in 0..ROUNDS {
        match arm(what) {
            UCS_OK => return Ok(()),
            UCS_ERR_BUSY => progress(what),
            status => return Err(Unarmed::Refused(status)),
        }
    }
    Err(Unarmed::Busy)
}

#[cfg(test)]
mod tests {
    use ucx_sys::UCS_ERR_IO_ERROR;

    use super::*;

    /// Arms where the first `busy` attempts find something to do, and the next says `then`.
    fn after(busy: usize, then: ucs_status_t) -> (Result<(), Unarmed>, usize) {
        let (mut attempts, mut rounds) = (0, 0);
        let arm = |_: &mut ()| {
            attempts += 1;
            if attempts <= busy { UCS_ERR_BUSY } else { then }
        };
        let armed = try_arm(&mut (), arm, |()| rounds += 1);
        (armed, rounds)
    }

    #[test]
    fn what_happened_before_is_looked_at_but_not_for_ever() {
        assert_eq!(after(0, UCS_OK), (Ok(()), 0));
        assert_eq!(after(ROUNDS - 1, UCS_OK), (Ok(()), ROUNDS - 1));
        assert_eq!(after(usize::MAX, UCS_OK), (Err(Unarmed::Busy), ROUNDS));
    }

    #[test]
    fn what_ucx_refuses_is_not_taken_for_armed() {
        let refused = Err(Unarmed::Refused(UCS_ERR_IO_ERROR));
        assert_eq!(after(3, UCS_ERR_IO_ERROR), (refused, 3));
    }
}
