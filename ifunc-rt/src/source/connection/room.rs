//! Those that wait for room to send, in the order in which they came.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::source::helm::Ticket;

/// How many frames of others may pass the first that insists. Room that is given back is taken at once by whoever runs,
/// which is what keeps a connection busy; but who needs much of it would wait for ever.
const MAX_PASSED: u32 = 64;

/// The queue. Tickets are given in the order in which they are first used.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    queue: BTreeMap<Ticket, Entry>,
}

#[derive(Debug)]
struct Entry {
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
        let entry = self.queue.entry(ticket).or_insert(Entry {
            need,
            passed: 0,
            insists,
            waker: None,
        });
        (entry.need, entry.waker) = (need, waker);
    }

    /// Waits no more. The next one, if it is that one's turn now: whoever leaves may have been woken for room that it did not
    /// take.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let left = self.queue.remove(&ticket)?;
        let was_first = self
            .queue
            .first_key_value()
            .is_none_or(|(first, _)| *first > ticket);
        if was_first || left.waker.is_none() {
            self.wake_first()
        } else {
            None
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether this one (0: one that has not waited yet) may take room now.
    pub(super) fn admits(&mut self, ticket: Ticket) -> bool {
        self.passes(ticket).is_none_or(|first| first.passed < MAX_PASSED)
    }

    /// This one has taken room.
    pub(super) fn taken(&mut self, ticket: Ticket) {
        if let Some(first) = self.passes(ticket) {
            first.passed += 1;
        }
    }

    /// What the first that sleeps needs, if it is that one's turn.
    pub(super) fn wanted(&mut self) -> Option<usize> {
        self.first_asleep().map(|first| first.need)
    }

    /// The first that sleeps, to be woken, if it is that one's turn.
    pub(super) fn wake_first(&mut self) -> Option<Waker> {
        self.first_asleep()?.waker.take()
    }

    /// Everybody that sleeps, to be woken.
    pub(super) fn wake_all(&mut self) -> impl Iterator<Item = Waker> {
        self.queue.values_mut().filter_map(|entry| entry.waker.take())
    }

    /// The first that insists, if this one came behind it.
    fn passes(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let (first, entry) = self.queue.iter_mut().find(|(_, entry)| entry.insists)?;
        (ticket == 0 || *first < ticket).then_some(entry)
    }

    /// The first that sleeps, unless a thread that is awake came before it: that one will look, and wakes the next when it
    /// leaves. A task that was woken may never be polled again.
    fn first_asleep(&mut self) -> Option<&mut Entry> {
        let first = self
            .queue
            .values_mut()
            .find(|entry| entry.insists || entry.waker.is_some())?;
        first.waker.is_some().then_some(first)
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
        // Nor one that was woken, and is not polled: those behind it are woken in turn, and pass the place on.
        rooms.wait(2, 8, true, Some(Waker::noop()));
        rooms.wait(3, 8, true, Some(Waker::noop()));
        assert!(rooms.wake_first().is_some() && rooms.wanted() == Some(8));
        assert!(rooms.wake_first().is_some(), "the second");
        assert!(rooms.wake_first().is_none(), "the second will look");
        assert!(rooms.leave(2).is_some(), "the third, from the second's place");
        rooms.wait(4, 8, false, Some(Waker::noop()));
        rooms.wait(5, 8, false, Some(Waker::noop()));
        assert!(rooms.leave(5).is_none(), "it was not woken for any room");
        // Nor do threads behind it starve.
        for _ in 0..MAX_PASSED {
            rooms.taken(0);
        }
        assert!(!rooms.admits(0) && rooms.admits(1) && rooms.admits(3));
        assert_eq!(rooms.wake_all().count(), 1);
        assert!(rooms.wanted().is_none());
    }
}
