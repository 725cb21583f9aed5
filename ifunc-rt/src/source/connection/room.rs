//! Those that wait for room to send, in the order in which they came.

use std::collections::VecDeque;
use std::task::Waker;

use crate::source::helm::Ticket;

/// How many frames of others may pass the first that waits. Room that is given back is taken at once by whoever runs,
/// which is what keeps a connection busy; but who needs much of it would wait for ever.
const MAX_PASSED: u32 = 64;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    queue: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    /// Bytes that there was no room for.
    need: usize,
    passed: u32,
    /// A thread, which will look when it is woken; a task may never be polled again, and holds up nobody.
    insists: bool,
    /// `None`: it is awake.
    waker: Option<Waker>,
}

impl Rooms {
    /// Waits, from now on; who waits already keeps its turn. Without a waker it looks itself.
    pub(super) fn wait(&mut self, ticket: Ticket, need: usize, insists: bool, waker: Option<&Waker>) {
        let waker = waker.cloned();
        match self.queue.iter_mut().find(|entry| entry.ticket == ticket) {
            Some(entry) => (entry.need, entry.waker) = (need, waker),
            None => self.queue.push_back(Entry {
                ticket,
                need,
                passed: 0,
                insists,
                waker,
            }),
        }
    }

    /// Waits no more. The next one, if it is that one's turn now.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let place = self.queue.iter().position(|entry| entry.ticket == ticket)?;
        self.queue.remove(place);
        if place > 0 {
            return None;
        }
        self.wake_first()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether this one (0: one that has not waited yet) may take room now.
    pub(super) fn admits(&self, ticket: Ticket) -> bool {
        match self.queue.front() {
            None => true,
            Some(first) => first.ticket == ticket || !first.insists || first.passed < MAX_PASSED,
        }
    }

    /// This one has taken room.
    pub(super) fn taken(&mut self, ticket: Ticket) {
        if let Some(first) = self.queue.front_mut()
            && first.ticket != ticket
        {
            first.passed += 1;
        }
    }

    /// What the first needs, if it sleeps.
    pub(super) fn wanted(&self) -> Option<usize> {
        let first = self.queue.front()?;
        first.waker.as_ref().map(|_| first.need)
    }

    /// The first, to be woken, if it sleeps.
    pub(super) fn wake_first(&mut self) -> Option<Waker> {
        self.queue.front_mut()?.waker.take()
    }

    /// Everybody that sleeps, to be woken.
    pub(super) fn wake_all(&mut self) -> impl Iterator<Item = Waker> {
        self.queue.iter_mut().filter_map(|entry| entry.waker.take())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_passed_by_some_and_not_by_all() {
        let mut rooms = Rooms::default();
        assert!(rooms.admits(0) && rooms.wanted().is_none());
        rooms.wait(1, 1000, true, Some(Waker::noop()));
        rooms.wait(2, 8, true, None);
        assert_eq!(rooms.wanted(), Some(1000));
        for _ in 0..MAX_PASSED {
            assert!(rooms.admits(0) && rooms.admits(2));
            rooms.taken(0);
        }
        assert!(rooms.admits(1) && !rooms.admits(0) && !rooms.admits(2));
        rooms.wait(1, 500, true, Some(Waker::noop()));
        assert_eq!(rooms.wanted(), Some(500), "it keeps its turn");
        assert!(rooms.leave(1).is_none(), "the next one is awake");
        assert!(rooms.admits(2) && rooms.admits(0));
        rooms.wait(3, 8, true, Some(Waker::noop()));
        assert!(rooms.leave(2).is_some());
    }

    #[test]
    fn a_task_holds_up_nobody() {
        let mut rooms = Rooms::default();
        rooms.wait(1, 1000, false, Some(Waker::noop()));
        for _ in 0..2 * MAX_PASSED {
            assert!(rooms.admits(0));
            rooms.taken(0);
        }
        assert_eq!(rooms.wake_all().count(), 1);
        assert!(rooms.wanted().is_none());
    }
}
