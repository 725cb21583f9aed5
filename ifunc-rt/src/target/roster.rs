//! Which connections are looked at, and which rest until something happens to them.
//!
//! A look at a connection costs some ten nanoseconds, which hundreds of idle ones make microseconds. Those that had nothing
//! for a while *rest*: their listener names them when something happens ([`Listener::ready`]). To put one to rest takes a
//! barrier, and to name it again costs its source a little, so a few are always looked at, and the others for some tens of
//! microseconds; a target that has only a few notices nothing of all this.

use std::collections::{HashMap, VecDeque};

use super::Host;
use super::connection::{Argument, Connection};
use crate::transport::{Key, Listener};
use ifunc_exec::Session;

/// So many connections may be looked at in vain.
const FEW: usize = 8;
/// Looks at connections between two reviews of who had nothing: longer than the barrier takes that follows.
const REVIEW: usize = 4096;

/// The connections of a target.
#[derive(Default)]
pub(super) struct Roster {
    hot: VecDeque<Box<Connection>>,
    resting: HashMap<Key, Box<Connection>>,
    /// Looks since the last review.
    looks: usize,
    /// Number of the last connection.
    last: u64,
    keys: Vec<Key>,
}

impl Roster {
    pub(super) fn len(&self) -> usize {
        self.hot.len() + self.resting.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.hot
            .iter()
            .chain(self.resting.values())
            .map(|connection| &**connection)
    }

    /// Takes in connections that were made, and those that rest no more; whether there were any.
    pub(super) fn gather(&mut self, listener: &mut dyn Listener, host: &Host) -> bool {
        let mut some = false;
        while let Some(link) = listener.accept() {
            self.last += 1;
            let connection = Connection::new(self.last, link, host);
            self.hot.push_back(Box::new(connection));
            some = true;
        }
        if !self.resting.is_empty() {
            listener.ready(&mut self.keys);
            for key in self.keys.drain(..) {
                if let Some(mut connection) = self.resting.remove(&key) {
                    connection.wake();
                    self.hot.push_back(connection);
                    some = true;
                }
            }
        }
        some
    }

    /// Looks once at all that do not rest; how many frames were dealt with.
    pub(super) fn poll(
        &mut self,
        listener: &mut dyn Listener,
        host: &Host,
        session: &mut Session<'_>,
        argument: Argument,
    ) -> usize {
        // Nobody is always the first.
        let count = self.hot.len();
        if count > 1 {
            self.hot.rotate_left(1);
        }
        let mut done = 0;
        let mut at = 0;
        while let Some(connection) = self.hot.get_mut(at) {
            match connection.poll(host, session, argument) {
                Ok(frames) => {
                    done += frames;
                    at += 1;
                }
                Err(end) => {
                    if let Some(connection) = self.hot.remove(at) {
                        connection.ended(&end);
                    }
                }
            }
        }
        self.looks += count;
        if self.looks >= REVIEW {
            self.review(listener);
        }
        done
    }

    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        self.hot.len()
    }

    /// Whether nobody is looked at.
    pub(super) fn all_rest(&self) -> bool {
        self.hot.is_empty()
    }

    /// The next to be looked at, for a thread to have for itself.
    pub(super) fn take_next(&mut self, listener: &mut dyn Listener) -> Option<Box<Connection>> {
        self.looks += 1;
        if self.looks >= REVIEW {
            self.review(listener);
        }
        self.hot.pop_front()
    }

    /// Takes a connection back, behind all others.
    pub(super) fn put_back(&mut self, connection: Box<Connection>) {
        self.hot.push_back(connection);
    }

    /// Puts to rest who had nothing since the last review, if many are looked at.
    fn review(&mut self, listener: &mut dyn Listener) {
        self.looks = 0;
        let spare = self.hot.len().saturating_sub(FEW);
        let mut idle = Vec::new();
        for _ in 0..self.hot.len() {
            let Some(mut connection) = self.hot.pop_front() else {
                break;
            };
            if !connection.take_busy() && idle.len() < spare {
                idle.push(connection);
            } else {
                self.hot.push_back(connection);
            }
        }
        self.rest_all(listener, idle);
    }

    /// Puts all to rest; whether none of them has something to do. Those that have are looked at.
    pub(super) fn rest(&mut self, listener: &mut dyn Listener) -> bool {
        let all = self.hot.drain(..).collect();
        self.rest_all(listener, all)
    }

    #[expect(clippy::vec_box, reason = "they move on, from list to list")]
    fn rest_all(&mut self, listener: &mut dyn Listener, mut connections: Vec<Box<Connection>>) -> bool {
        if connections.is_empty() {
            return true;
        }
        for connection in &mut connections {
            connection.rest();
        }
        listener.fence();
        let mut quiet = true;
        for mut connection in connections {
            if connection.is_quiet() {
                self.resting.insert(connection.key(), connection);
            } else {
                quiet = false;
                connection.wake();
                self.hot.push_back(connection);
            }
        }
        quiet
    }
}
