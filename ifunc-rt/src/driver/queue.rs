//! Parked futures.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// Names a waiter. Tickets are given in the order in which waiters first wait; 0 names no waiter.
pub(crate) type Ticket = u64;

/// Parked waiters, in the order of their tickets.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    parked: BTreeMap<Ticket, Parked>,
    /// No deadline is earlier. Kept after its waiter left: most later deadlines are later than it, and change nothing.
    earliest: Option<Instant>,
}

#[derive(Debug)]
struct Parked {
    waker: Waker,
    /// When this queue wakes it.
    deadline: Instant,
}

impl WaitQueue {
    /// Parks a waiter, or replaces its waker. Returns whether its deadline is the earliest.
    pub(crate) fn park(&mut self, ticket: Ticket, waker: Waker, deadline: Instant) -> bool {
        self.parked.insert(ticket, Parked { waker, deadline });
        let is_earliest = self.earliest.is_none_or(|known| deadline < known);
        if is_earliest {
            self.earliest = Some(deadline);
        }
        is_earliest
    }

    /// Removes a waiter. It is parked no more once its waker is taken.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Waker> {
        self.parked.remove(&ticket).map(|parked| parked.waker)
    }

    /// Removes all waiters.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> {
        std::mem::take(&mut self.parked)
            .into_values()
            .map(|parked| parked.waker)
    }

    /// The next deadline. While no waiter is parked, the last one known stays until it has passed.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        if self.parked.is_empty() && self.earliest.is_some_and(|earliest| earliest <= Instant::now()) {
            self.earliest = None;
        }
        self.earliest
    }

    /// Moves the wakers whose deadline has passed to `woken`. Returns the next deadline.
    pub(crate) fn expire(&mut self, woken: &mut Vec<Waker>) -> Option<Instant> {
        let earliest = self.earliest?;
        let now = Instant::now();
        if now < earliest {
            return Some(earliest);
        }
        let past = self.parked.extract_if(.., |_, parked| now >= parked.deadline);
        woken.extend(past.map(|(_, parked)| parked.waker));
        self.earliest = self.parked.values().map(|parked| parked.deadline).min();
        self.earliest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiters_leave_in_order_and_at_their_deadlines() {
        let waker = || Waker::noop().clone();
        let now = Instant::now();
        let (far, farther) = (now + Duration::from_secs(60), now + Duration::from_secs(120));
        let mut queue = WaitQueue::default();
        assert!(queue.park(3, waker(), farther));
        assert!(queue.park(2, waker(), far));
        assert!(!queue.park(4, waker(), farther));
        assert!(queue.park(1, waker(), now));
        let mut woken = Vec::new();
        assert_eq!(queue.expire(&mut woken), Some(far));
        assert_eq!((woken.len(), queue.len()), (1, 3));
        assert!(queue.take(2).is_some() && queue.take(2).is_none());
        assert_eq!(queue.take_all().count(), 2);
        assert!(queue.take(3).is_none());
        assert!(queue.is_empty());
    }
}
