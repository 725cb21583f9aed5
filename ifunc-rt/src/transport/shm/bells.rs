//! One file descriptor for all that can wake a target: new connections and the rings and ends of those that
//! it has.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::Connection;
use super::watch::Token;
use crate::transport::bell::Bell;

/// Events taken at a time.
const BATCH: usize = 64;
/// The door's own bell; tokens of connections are never 0.
const DOOR: u64 = 0;

/// An epoll instance over the door's bell and the sockets of all connections.
pub(super) struct Bells {
    epoll: OwnedFd,
    door: Bell,
    connections: Mutex<HashMap<u64, Weak<Connection>>>,
}

impl Bells {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let door = Bell::new()?;
        epoll::add(
            &epoll,
            &door,
            epoll::EventData::new_u64(DOOR),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            door,
            connections: Mutex::default(),
        })
    }

    /// Rings for a new connection.
    pub(super) fn ring(&self) {
        self.door.ring();
    }

    /// Rings whenever `connection`'s peer does, and when it is gone.
    pub(super) fn add(&self, connection: &Arc<Connection>) -> rustix::io::Result<()> {
        let token = connection.token().get();
        self.table().insert(token, Arc::downgrade(connection));
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(
            &self.epoll,
            connection.socket(),
            epoll::EventData::new_u64(token),
            wanted,
        )
        .inspect_err(|_| drop(self.table().remove(&token)))
    }

    /// Undoes `add`. Closing alone would not, if a forked child holds `socket` too.
    pub(super) fn remove(&self, token: Token, socket: BorrowedFd<'_>) {
        self.table().remove(&token.get());
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Takes the rings that there are, as far as one batch goes. Whose they were is set on the board.
    pub(super) fn silence(&self) {
        let mut events = Vec::with_capacity(BATCH);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now)).is_err() {
            return;
        }
        for event in events {
            if event.data.u64() == DOOR {
                self.door.silence();
                continue;
            }
            let connection = self.table().get(&event.data.u64()).and_then(Weak::upgrade);
            let Some(connection) = connection else { continue };
            connection.drain();
            connection.stir();
            if connection.is_gone() {
                // It would stay readable for ever.
                self.remove(connection.token(), connection.socket());
            }
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Bells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
