//! Who receives, when several threads wait on one connection.
//!
//! Two places are taken by one of them each: one thread *looks* for what has come, again and again, while that is
//! cheaper than sleep; and one *sleeps* on the connection's bell. All others follow: they sleep on something of their
//! own, and whoever receives what they wait for wakes them. When there is neither a looker nor a sleeper any more, the
//! follower that has followed longest is woken to take its place. Everything here happens under the connection's lock.

use std::collections::VecDeque;
use std::task::Waker;

/// Who is who among those that wait.
pub(super) type Ticket = u64;

/// The two places, and who would take one.
#[derive(Debug, Default)]
pub(super) struct Helm {
    looks: bool,
    sleeps: bool,
    followers: VecDeque<(Ticket, Waker)>,
    last: Ticket,
}

impl Helm {
    /// A new ticket, never 0.
    pub(super) fn ticket(&mut self) -> Ticket {
        self.last += 1;
        self.last
    }

    /// Takes the looker's place, if it is free.
    pub(super) fn look(&mut self) -> bool {
        !std::mem::replace(&mut self.looks, true)
    }

    /// Gives the looker's place back.
    pub(super) fn stop_looking(&mut self) {
        self.looks = false;
    }

    /// Takes the sleeper's place, if it is free.
    pub(super) fn sleep(&mut self) -> bool {
        !std::mem::replace(&mut self.sleeps, true)
    }

    /// Gives the sleeper's place back.
    pub(super) fn wake_up(&mut self) {
        self.sleeps = false;
    }

    /// Follows, from now on; who follows already keeps its turn.
    pub(super) fn follow(&mut self, ticket: Ticket, waker: &Waker) {
        match self.followers.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, old)) => old.clone_from(waker),
            None => self.followers.push_back((ticket, waker.clone())),
        }
    }

    /// Follows no more.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.followers.retain(|(other, _)| *other != ticket);
    }

    /// The follower that is to be woken, if nobody receives now. Asked by everybody who stops waiting, whatever for:
    /// it may have been woken to take a place that it does not need any more.
    #[must_use]
    pub(super) fn pass_on(&mut self) -> Option<Waker> {
        if self.looks || self.sleeps {
            return None;
        }
        self.followers.pop_front().map(|(_, waker)| waker)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_once_and_passed_on_in_turn() {
        let waker = || Waker::noop();
        let mut helm = Helm::default();
        let (a, b) = (helm.ticket(), helm.ticket());
        assert!(helm.look() && !helm.look());
        assert!(helm.sleep() && !helm.sleep());
        helm.follow(a, waker());
        helm.follow(b, waker());
        helm.follow(a, waker());
        helm.stop_looking();
        assert!(helm.pass_on().is_none(), "somebody sleeps on the bell");
        helm.wake_up();
        assert!(helm.pass_on().is_some());
        assert_eq!(helm.followers.front().map(|(ticket, _)| *ticket), Some(b));
        helm.leave(b);
        assert!(helm.pass_on().is_none());
    }
}
