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
    sleeps: Option<Sleeper>,
    followers: VecDeque<Follower>,
    last: Ticket,
}

/// Who sleeps on the bell.
#[derive(Debug)]
enum Sleeper {
    /// A thread of ours, which will wake up.
    Thread,
    /// An event loop of the user's, of which nobody knows whether it still turns: a thread takes its place.
    Loop(Follower),
}

#[derive(Debug)]
struct Follower {
    ticket: Ticket,
    waker: Waker,
    is_loop: bool,
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

    /// Takes the sleeper's place, if no thread has it. A loop that has it follows from now on.
    pub(super) fn sleep(&mut self) -> bool {
        match self.sleeps.replace(Sleeper::Thread) {
            Some(Sleeper::Thread) => return false,
            Some(Sleeper::Loop(follower)) => self.followers.push_back(follower),
            None => {}
        }
        true
    }

    /// Gives the sleeper's place back.
    pub(super) fn wake_up(&mut self) {
        self.sleeps = None;
    }

    /// Follows, from now on; who follows already keeps its turn.
    pub(super) fn follow(&mut self, ticket: Ticket, waker: &Waker) {
        match self.followers.iter_mut().find(|other| other.ticket == ticket) {
            Some(old) => old.waker.clone_from(waker),
            None => self.followers.push_back(Follower {
                ticket,
                waker: waker.clone(),
                is_loop: false,
            }),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.followers.len() + usize::from(self.looks) + usize::from(self.sleeps.is_some())
    }

    /// Follows no more.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.followers.retain(|other| other.ticket != ticket);
    }

    /// Takes the sleeper's place for an event loop, which follows if it is taken.
    pub(super) fn sleep_in_loop(&mut self, ticket: Ticket, waker: Waker) -> bool {
        let follower = Follower {
            ticket,
            waker,
            is_loop: true,
        };
        self.leave(ticket);
        if self.sleeps.is_none() {
            self.sleeps = Some(Sleeper::Loop(follower));
            return true;
        }
        self.followers.push_back(follower);
        false
    }

    /// Whether an event loop has the sleeper's place.
    pub(super) fn sleeps_in_loop(&self) -> bool {
        matches!(self.sleeps, Some(Sleeper::Loop(_)))
    }

    /// The follower that is to be woken, if nobody receives now. Asked by everybody who stops waiting, whatever for:
    /// it may have been woken to take a place that it does not need any more. Threads come first: they wake up.
    #[must_use]
    pub(super) fn pass_on(&mut self) -> Option<Waker> {
        if self.looks || matches!(self.sleeps, Some(Sleeper::Thread)) {
            return None;
        }
        let next = match self.followers.iter().position(|follower| !follower.is_loop) {
            Some(thread) => self.followers.remove(thread),
            None if self.sleeps.is_none() => self.followers.pop_front(),
            None => None,
        };
        next.map(|follower| follower.waker)
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
        assert_eq!(helm.followers.front().map(|next| next.ticket), Some(b));
        helm.leave(b);
        assert!(helm.pass_on().is_none());
    }

    #[test]
    fn nobody_relies_on_a_loop() {
        let mut helm = Helm::default();
        let (event_loop, thread) = (helm.ticket(), helm.ticket());
        assert!(helm.sleep_in_loop(event_loop, Waker::noop().clone()));
        helm.follow(thread, Waker::noop());
        assert!(
            helm.pass_on().is_some(),
            "the thread receives, asleep as the loop is"
        );
        assert!(
            helm.sleep() && !helm.sleeps_in_loop(),
            "it takes the loop's place"
        );
        assert!(helm.pass_on().is_none());
        assert!(
            !helm.sleep_in_loop(event_loop, Waker::noop().clone()),
            "it follows"
        );
        helm.wake_up();
        assert!(helm.pass_on().is_some(), "and is rung at last");
        assert!(helm.pass_on().is_none());
    }
}
