//! Which connections are polled, and which are parked until something happens to them.
//!
//! A poll of a connection costs some ten nanoseconds, which hundreds of idle ones make microseconds. Connections that had
//! nothing for a while are *parked*: their listener names them when something happens ([`Listener::ready`]). To park one takes a
//! barrier, and to name it costs its source a little. So a few are always active, and the others for some tens of
//! microseconds; a target that has only a few never parks one while it polls.

use std::collections::{HashMap, VecDeque};

use crate::transport::{Key, Link, Listener};

/// So many connections may be polled in vain.
const FEW: usize = 8;
/// Polls of connections between two reviews of which had nothing: longer than the barrier takes that follows.
const REVIEW: usize = 4096;
/// Polls in a row that find something between two looks at the listener, after each of which a load may miss the cache.
const TEND: u32 = 8;

/// A connection, as the scheduler sees it.
pub(crate) trait Scheduled {
    /// By which the listener names it.
    fn key(&self) -> Key;

    /// Whether it had anything since this was asked last.
    fn take_ready(&mut self) -> bool;

    /// Announces that it is polled no more until the listener names it. It holds after the listener's fence.
    fn park(&mut self);

    /// Whether it has nothing. Asked after the fence.
    fn is_quiet(&mut self) -> bool;

    /// It is polled again.
    fn unpark(&mut self);
}

/// The connections of a target.
pub(crate) struct Scheduler<C> {
    active: VecDeque<Box<C>>,
    parked: HashMap<Key, Box<C>>,
    /// Polls since the last review.
    polls: usize,
    /// Polls until the listener is asked again. 0 after a poll that found nothing.
    until_tended: u32,
    /// Number of the last connection.
    last: u64,
    keys: Vec<Key>,
}

impl<C> Default for Scheduler<C> {
    fn default() -> Self {
        Self {
            active: VecDeque::new(),
            parked: HashMap::new(),
            polls: 0,
            until_tended: 0,
            last: 0,
            keys: Vec::new(),
        }
    }
}

impl<C: Scheduled> Scheduler<C> {
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.parked.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        let all = self.active.iter().chain(self.parked.values());
        all.map(|connection| &**connection)
    }

    #[cfg(test)]
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// Whether all connections are parked.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Adds the connection that `make` makes for a number.
    pub(crate) fn add<R, E>(&mut self, make: impl FnOnce(u64) -> Result<(R, C), E>) -> Result<R, E> {
        let (result, connection) = make(self.last + 1)?;
        self.last += 1;
        self.active.push_back(Box::new(connection));
        Ok(result)
    }

    /// Activates connections that are parked.
    pub(crate) fn unpark(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(mut connection) = self.parked.remove(key) {
                connection.unpark();
                self.active.push_back(connection);
            }
        }
    }

    /// Accepts new connections, and activates those that are parked no more. Returns whether there were any.
    pub(crate) fn gather(&mut self, listener: &mut dyn Listener, new: impl Fn(u64, Link) -> C) -> bool {
        let before = self.active.len();
        while let Some(link) = listener.accept() {
            self.last += 1;
            self.active.push_back(Box::new(new(self.last, link)));
        }
        if !self.parked.is_empty() {
            let mut keys = std::mem::take(&mut self.keys);
            listener.ready(&mut keys);
            self.unpark(&keys);
            keys.clear();
            self.keys = keys;
        }
        self.active.len() > before
    }

    /// Polls each active connection once; `poll` returns how many frames it handled, `None` if the connection is over. Returns
    /// the sum. While polls find something, only one of several first gathers connections.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        listener: &mut dyn Listener,
        new: impl Fn(u64, Link) -> C,
        mut poll: impl FnMut(&mut C) -> Option<usize>,
    ) -> usize {
        if self.until_tended == 0 {
            self.tend(listener, new);
        }
        self.until_tended -= 1;
        let mut handled = 0;
        let mut at = 0;
        while let Some(connection) = self.active.get_mut(at) {
            match poll(connection) {
                Some(frames) => {
                    handled += frames;
                    at += 1;
                }
                None => drop(self.active.remove(at)),
            }
        }
        self.polls += at;
        if handled == 0 {
            self.until_tended = 0;
        }
        handled
    }

    /// Gathers connections, and parks those that had nothing. Rotates the others so that no connection is always served
    /// first.
    #[inline(never)]
    fn tend(&mut self, listener: &mut dyn Listener, new: impl Fn(u64, Link) -> C) {
        self.until_tended = TEND;
        if self.polls >= REVIEW {
            self.review(listener);
        }
        self.gather(listener, new);
        if self.active.len() > 1 {
            self.active.rotate_left(1);
        }
    }

    /// Takes the next active connection, for a thread to have for itself.
    pub(crate) fn take_next(&mut self, listener: &mut dyn Listener) -> Option<Box<C>> {
        self.polls += 1;
        if self.polls >= REVIEW {
            self.review(listener);
        }
        self.active.pop_front()
    }

    /// Takes a connection back, after all others.
    pub(crate) fn put_back(&mut self, connection: Box<C>) {
        self.active.push_back(connection);
    }

    /// Parks connections that had nothing, if there are many.
    #[cold]
    fn review(&mut self, listener: &mut dyn Listener) {
        self.polls = 0;
        let spare = self.active.len().saturating_sub(FEW);
        let mut idle = VecDeque::new();
        for _ in 0..self.active.len() {
            let Some(mut connection) = self.active.pop_front() else {
                break;
            };
            if !connection.take_ready() && idle.len() < spare {
                idle.push_back(connection);
            } else {
                self.active.push_back(connection);
            }
        }
        self.park(listener, idle);
    }

    /// Parks all connections. Returns whether none of them has anything; those that have stay active.
    pub(crate) fn park_all(&mut self, listener: &mut dyn Listener) -> bool {
        let all = std::mem::take(&mut self.active);
        self.park(listener, all)
    }

    fn park(&mut self, listener: &mut dyn Listener, mut connections: VecDeque<Box<C>>) -> bool {
        if connections.is_empty() {
            return true;
        }
        connections.iter_mut().for_each(|connection| connection.park());
        listener.fence();
        let mut is_quiet = true;
        for mut connection in connections {
            if connection.is_quiet() {
                self.parked.insert(connection.key(), connection);
            } else {
                is_quiet = false;
                connection.unpark();
                self.active.push_back(connection);
            }
        }
        is_quiet
    }
}
