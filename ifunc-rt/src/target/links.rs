//! Which connections are polled, and which are parked until something happens to them.
//!
//! A poll of a connection costs some ten nanoseconds, which hundreds of idle ones make microseconds. Connections that had
//! nothing for a while are *parked*: their listener names them when something happens ([`Listener::ready`]). To park one takes a
//! barrier, and to name it costs its source a little. So a few are always active, and the others for some tens of
//! microseconds; a target that has only a few never parks one while it polls.

use std::collections::{HashMap, VecDeque};

use ifunc_exec::Session;

use super::Host;
use super::connection::{Argument, Connection};
use super::duplex::Duplex;
use crate::Source;
use crate::transport::{Key, Listener};

/// So many connections may be polled in vain.
const FEW: usize = 8;
/// Polls of connections between two reviews of which had nothing: longer than the barrier takes that follows.
const REVIEW: usize = 4096;
/// Polls that find up to as many frames each, between two looks at the listener, after each of which a load may miss the cache.
/// A poll that finds more is followed by a look: invocations may be slow.
const TEND: u32 = 8;

/// The connections of a target, and what reports new ones.
pub(super) struct Links {
    active: VecDeque<Box<Connection>>,
    parked: HashMap<Key, Box<Connection>>,
    pub(super) listener: Box<dyn Listener>,
    /// Links that the target made: its listener does not report them.
    connected: Vec<Key>,
    /// Polls since the last review.
    polls: usize,
    /// Polls until the listener is asked again. 0 after a poll that found nothing, or much.
    until_tended: u32,
    /// Number of the last connection.
    last: u64,
    keys: Vec<Key>,
}

impl Links {
    /// No connections yet.
    pub(super) fn new(listener: Box<dyn Listener>) -> Self {
        Self {
            active: VecDeque::new(),
            parked: HashMap::new(),
            listener,
            connected: Vec::new(),
            polls: 0,
            until_tended: 0,
            last: 0,
            keys: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.active.len() + self.parked.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        let all = self.active.iter().chain(self.parked.values());
        all.map(|connection| &**connection)
    }

    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// Whether all connections are parked.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Adds a connection over a link that the target makes: `make` makes it for a number.
    pub(super) fn connect<E>(
        &mut self,
        make: impl FnOnce(u64) -> Result<(Source, Duplex), E>,
    ) -> Result<Source, E> {
        let (source, duplex) = make(self.last + 1)?;
        self.last += 1;
        self.connected.push(duplex.key);
        let connection = Connection::Duplex(Box::new(duplex));
        self.active.push_back(Box::new(connection));
        Ok(source)
    }

    /// Activates connections that are parked.
    fn unpark(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(mut connection) = self.parked.remove(key) {
                connection.unpark();
                self.active.push_back(connection);
            }
        }
    }

    /// Accepts new connections, and activates those that are parked no more. Returns whether there were any.
    pub(super) fn gather(&mut self, host: &Host) -> bool {
        let before = self.active.len();
        while let Some(link) = self.listener.accept() {
            self.last += 1;
            let connection = Connection::new(self.last, link, host);
            self.active.push_back(Box::new(connection));
        }
        if !self.parked.is_empty() {
            let mut keys = std::mem::take(&mut self.keys);
            self.listener.ready(&mut keys);
            self.unpark(&keys);
            keys.clear();
            self.keys = keys;
        }
        self.active.len() > before
    }

    /// Polls each active connection once. Returns how many frames they handled. While polls find a few, only one of several first
    /// gathers connections.
    #[inline]
    pub(super) fn poll(&mut self, host: &Host, session: &mut Session<'_>, argument: &Argument) -> usize {
        if self.until_tended == 0 {
            self.tend(host);
        }
        self.until_tended -= 1;
        let mut handled = 0;
        let mut at = 0;
        while let Some(connection) = self.active.get_mut(at) {
            match connection.poll(host, session, argument) {
                Some(frames) => {
                    handled += frames;
                    at += 1;
                }
                None => drop(self.active.remove(at)),
            }
        }
        self.polls += at;
        if handled == 0 || handled > TEND as usize {
            self.until_tended = 0;
        }
        handled
    }

    /// Gathers connections, and parks those that had nothing. Rotates the others so that no connection is always served
    /// first.
    #[inline(never)]
    fn tend(&mut self, host: &Host) {
        self.until_tended = TEND;
        if self.polls >= REVIEW {
            self.review();
        }
        self.gather(host);
        if self.active.len() > 1 {
            self.active.rotate_left(1);
        }
    }

    /// Takes the next active connection, for a thread to have for itself.
    pub(super) fn take_next(&mut self) -> Option<Box<Connection>> {
        self.polls += 1;
        if self.polls >= REVIEW {
            self.review();
        }
        self.active.pop_front()
    }

    /// Takes a connection back, after all others.
    pub(super) fn put_back(&mut self, connection: Box<Connection>) {
        self.active.push_back(connection);
    }

    /// Parks connections that had nothing, if there are many.
    #[cold]
    fn review(&mut self) {
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
        self.park(idle);
    }

    /// Announces sleep. `all`: parks all connections first, ready ones too: a parked connection wakes the target. Returns
    /// whether there is nothing to do.
    pub(super) fn arm(&mut self, host: &Host, all: bool) -> bool {
        self.listener.arm();
        let is_quiet = !all || {
            let all = std::mem::take(&mut self.active);
            self.park(all)
        };
        !self.gather(host) && is_quiet
    }

    /// Withdraws the announcement.
    pub(super) fn disarm(&mut self) {
        self.listener.disarm();
        let connected = std::mem::take(&mut self.connected);
        self.unpark(&connected);
        self.connected = connected;
    }

    /// Parks connections. Returns whether none of them has anything; those that have stay active.
    fn park(&mut self, mut connections: VecDeque<Box<Connection>>) -> bool {
        if connections.is_empty() {
            return true;
        }
        connections.iter_mut().for_each(|connection| connection.park());
        self.listener.fence();
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
