//! Waiters for credit, in the order in which they came.

use std::collections::BTreeMap;

use super::queue::Ticket;

/// Most frames of others that overtake the first thread. Credits that come back are taken at once by a thread that runs, which
/// keeps a link busy; but a thread that needs many of them would wait for ever.
const MAX_OVERTAKEN: u32 = 64;

/// The queue. It knows who waits for how much; [`WaitQueue`](super::queue::WaitQueue) knows how each is woken.
#[derive(Debug, Default)]
pub(super) struct CreditQueue {
    waiters: BTreeMap<Ticket, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Bytes that the last attempt had no credit for.
    need: usize,
    overtaken: u32,
    /// A thread attempts when it is woken. A future may never be polled again, and blocks no other waiter.
    is_thread: bool,
    is_parked: bool,
}

impl CreditQueue {
    /// Waits; a waiter that waits already keeps its place.
    pub(super) fn wait(&mut self, ticket: Ticket, need: usize, is_thread: bool, is_parked: bool) {
        let waiter = self.waiters.entry(ticket).or_insert(Waiter {
            need,
            overtaken: 0,
            is_thread,
            is_parked,
        });
        (waiter.need, waiter.is_parked) = (need, is_parked);
    }

    /// Waits no more. Returns the waiter to wake: one that leaves may have been woken for credit that it did not take.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Ticket> {
        let left = self.waiters.remove(&ticket)?;
        let first = self.waiters.first_key_value();
        let was_first = first.is_none_or(|(first, _)| *first > ticket);
        if was_first || !left.is_parked {
            self.wake_first()
        } else {
            None
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether this waiter (0: a caller that has not waited) may take credit now.
    pub(super) fn admits(&mut self, ticket: Ticket) -> bool {
        self.overtaken_by(ticket)
            .is_none_or(|first| first.overtaken < MAX_OVERTAKEN)
    }

    /// This waiter (0: as above) has taken credit.
    pub(super) fn took(&mut self, ticket: Ticket) {
        if let Some(first) = self.overtaken_by(ticket) {
            first.overtaken += 1;
        }
    }

    /// Bytes that the first parked waiter needs, if it is its turn.
    pub(super) fn wanted(&mut self) -> Option<usize> {
        self.first_parked().map(|(_, first)| first.need)
    }

    /// The first parked waiter, to be woken, if it is its turn.
    pub(super) fn wake_first(&mut self) -> Option<Ticket> {
        let (ticket, first) = self.first_parked()?;
        first.is_parked = false;
        Some(ticket)
    }

    /// All parked waiters, to be woken.
    pub(super) fn wake_all(&mut self) -> impl Iterator<Item = Ticket> {
        let parked = |waiter: &mut Waiter| std::mem::take(&mut waiter.is_parked);
        self.waiters
            .iter_mut()
            .filter_map(move |(&ticket, waiter)| parked(waiter).then_some(ticket))
    }

    /// The first thread, if this waiter came after it.
    fn overtaken_by(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let (&first, waiter) = self.waiters.iter_mut().find(|(_, waiter)| waiter.is_thread)?;
        (ticket == 0 || first < ticket).then_some(waiter)
    }

    /// The first parked waiter, unless a thread that is awake came before it: that thread attempts, and wakes the next waiter
    /// when it leaves.
    fn first_parked(&mut self) -> Option<(Ticket, &mut Waiter)> {
        let mut waiters = self.waiters.iter_mut();
        let (&ticket, first) = waiters.find(|(_, waiter)| waiter.is_thread || waiter.is_parked)?;
        first.is_parked.then_some((ticket, first))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_overtaken_by_some_and_not_by_all() {
        let mut queue = CreditQueue::default();
        assert!(queue.admits(0) && queue.wanted().is_none());
        queue.wait(1, 1000, true, true);
        queue.wait(2, 8, true, false);
        assert_eq!(queue.wanted(), Some(1000));
        for _ in 0..MAX_OVERTAKEN {
            assert!(queue.admits(0) && queue.admits(2));
            queue.took(0);
        }
        assert!(queue.admits(1) && !queue.admits(0) && !queue.admits(2));
        queue.wait(1, 500, true, true);
        assert_eq!(queue.wanted(), Some(500), "it keeps its place");
        assert!(queue.leave(1).is_none(), "the next one is awake");
        assert!(queue.admits(2) && queue.admits(0));
        queue.wait(3, 8, true, true);
        assert!(queue.leave(2).is_some());
    }

    #[test]
    fn a_future_blocks_no_other_waiter() {
        let mut queue = CreditQueue::default();
        queue.wait(1, 1000, false, true);
        for _ in 0..2 * MAX_OVERTAKEN {
            assert!(queue.admits(0));
            queue.took(0);
        }
        // Nor does one that was woken, and is not polled: those after it are woken in turn, and hand over.
        queue.wait(2, 8, true, true);
        queue.wait(3, 8, true, true);
        assert!(queue.wake_first().is_some() && queue.wanted() == Some(8));
        assert!(queue.wake_first().is_some(), "the second");
        assert!(queue.wake_first().is_none(), "the second will attempt");
        assert!(queue.leave(2).is_some(), "the third, in the second's place");
        queue.wait(4, 8, false, true);
        queue.wait(5, 8, false, true);
        assert!(queue.leave(5).is_none(), "it was not woken for any credit");
        // Nor do threads after it starve.
        for _ in 0..MAX_OVERTAKEN {
            queue.took(0);
        }
        assert!(!queue.admits(0) && queue.admits(1) && queue.admits(3));
        assert_eq!(queue.wake_all().count(), 1);
        assert!(queue.wanted().is_none());
    }
}
