//! Who polls for all that wait.
//!
//! A *spinner* polls again and again, while that is cheaper than sleep. The *sleeper* is parked on the doorbell, which a peer
//! rings. All others are *followers*: each is parked on something of its own, and woken by the thread that receives what it
//! waits for, or to take the lead when no spinner and no sleeper is left. A source has one spinner at most; a target's worker pool
//! has as many as there is work for.

use std::collections::BTreeMap;
use std::task::Waker;

use super::queue::Ticket;

/// The threads and the event loop that poll, or would.
#[derive(Debug, Default)]
pub(crate) struct Leader {
    spinners: usize,
    sleeper: Option<Sleeper>,
    followers: BTreeMap<Ticket, Waker>,
    last_ticket: Ticket,
    /// An event loop of the application's that waits while a thread sleeps on the doorbell.
    event_loop: Option<Waker>,
}

#[derive(Debug)]
enum Sleeper {
    /// A thread, which takes the lead when it wakes up.
    Thread(Ticket, Waker),
    /// An event loop of the application's, which may never turn again. A thread takes its place.
    EventLoop(Waker),
}

impl Leader {
    /// A new waiter's.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Becomes the one spinner, unless there is one.
    pub(crate) fn try_spin(&mut self, ticket: Ticket) -> bool {
        if self.spinners > 0 {
            return false;
        }
        self.spin(ticket);
        true
    }

    /// Becomes a spinner.
    pub(crate) fn spin(&mut self, ticket: Ticket) {
        self.spinners += 1;
        self.followers.remove(&ticket);
    }

    pub(crate) fn stop_spinning(&mut self) {
        self.spinners -= 1;
    }

    pub(crate) fn spinners(&self) -> usize {
        self.spinners
    }

    /// Whether a thread sleeps on the doorbell.
    pub(crate) fn has_sleeper(&self) -> bool {
        matches!(self.sleeper, Some(Sleeper::Thread(..)))
    }

    /// Becomes the sleeper, unless a thread is; `doorbell` wakes it. An event loop that was the sleeper follows.
    pub(crate) fn sleep(&mut self, ticket: Ticket, doorbell: Waker) -> bool {
        if self.has_sleeper() {
            return false;
        }
        if let Some(Sleeper::EventLoop(waker)) = self.sleeper.replace(Sleeper::Thread(ticket, doorbell)) {
            self.event_loop = Some(waker);
        }
        true
    }

    /// The sleeper sleeps no more.
    pub(crate) fn wake_up(&mut self) {
        self.sleeper = None;
    }

    /// Follows.
    pub(crate) fn follow(&mut self, ticket: Ticket, waker: Waker) {
        self.followers.insert(ticket, waker);
    }

    /// Follows no more.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.followers.remove(&ticket);
    }

    /// The waker of this thread, if it is parked.
    pub(crate) fn waker(&mut self, ticket: Ticket) -> Option<Waker> {
        match &self.sleeper {
            Some(Sleeper::Thread(sleeper, waker)) if *sleeper == ticket => Some(waker.clone()),
            _ => self.followers.remove(&ticket),
        }
    }

    /// Makes an event loop the sleeper; if a thread is, the event loop follows.
    pub(crate) fn sleep_in_event_loop(&mut self, waker: Waker) -> bool {
        if self.has_sleeper() {
            self.event_loop = Some(waker);
            return false;
        }
        self.sleeper = Some(Sleeper::EventLoop(waker));
        true
    }

    /// Whether an event loop is the sleeper.
    pub(crate) fn event_loop_sleeps(&self) -> bool {
        matches!(self.sleeper, Some(Sleeper::EventLoop(_)))
    }

    /// The event loop follows no more.
    pub(crate) fn leave_event_loop(&mut self) {
        self.event_loop = None;
    }

    /// The waker of the next leader, if none is left. Asked by every thread that stops waiting, for whatever reason: it may have
    /// been woken to take a lead that it does not need any more. `doorbell_rings`: the doorbell wakes the sleeper for
    /// whatever comes next. Threads come before event loops, because they do wake up.
    pub(crate) fn successor(&mut self, doorbell_rings: bool) -> Option<Waker> {
        if self.spinners > 0 || doorbell_rings && self.has_sleeper() {
            return None;
        }
        if let Some((_, follower)) = self.followers.pop_first() {
            return Some(follower);
        }
        match &self.sleeper {
            Some(Sleeper::Thread(_, doorbell)) => Some(doorbell.clone()),
            Some(Sleeper::EventLoop(_)) => None,
            None => self.event_loop.take(),
        }
    }

    /// All that are parked.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> {
        let sleeper = match &self.sleeper {
            Some(Sleeper::Thread(_, waker) | Sleeper::EventLoop(waker)) => Some(waker.clone()),
            None => None,
        };
        std::mem::take(&mut self.followers).into_values().chain(sleeper)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let parked = self.followers.len() + usize::from(self.event_loop.is_some());
        parked + self.spinners + usize::from(self.sleeper.is_some())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    #[test]
    fn the_lead_is_taken_once_and_handed_over_in_turn() {
        let mut leader = Leader::default();
        assert!(leader.try_spin(1) && !leader.try_spin(2));
        assert!(leader.sleep(3, waker()) && !leader.sleep(4, waker()));
        leader.follow(5, waker());
        leader.follow(6, waker());
        leader.follow(5, waker());
        leader.stop_spinning();
        assert!(
            leader.successor(true).is_none(),
            "a thread sleeps on the doorbell"
        );
        leader.wake_up();
        assert!(leader.successor(true).is_some());
        assert!(leader.waker(5).is_none(), "it was the first");
        leader.leave(6);
        assert!(leader.successor(true).is_none());
        assert_eq!(leader.len(), 0);
    }

    #[test]
    fn a_sleeper_whose_doorbell_does_not_ring_is_the_last_to_be_woken() {
        let mut leader = Leader::default();
        leader.sleep(1, waker());
        leader.follow(2, waker());
        assert!(leader.successor(false).is_some() && leader.waker(2).is_none());
        assert!(leader.successor(false).is_some(), "the sleeper itself");
        leader.spin(3);
        leader.spin(4);
        leader.stop_spinning();
        assert!(leader.successor(false).is_none());
    }

    #[test]
    fn no_thread_relies_on_an_event_loop() {
        let mut leader = Leader::default();
        assert!(leader.sleep_in_event_loop(waker()));
        leader.follow(1, waker());
        assert!(leader.successor(true).is_some(), "the thread polls");
        assert!(leader.sleep(1, waker()) && !leader.event_loop_sleeps());
        assert!(leader.successor(true).is_none());
        assert!(!leader.sleep_in_event_loop(waker()), "it follows");
        leader.wake_up();
        assert!(leader.successor(true).is_some(), "and is woken at last");
        assert!(leader.successor(true).is_none());
    }
}
