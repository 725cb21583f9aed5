//! One file descriptor for all that wakes a target: new connections, and the wake-ups and ends of the connections that it
//! has.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::Connection;
use super::watch::Token;
use crate::transport::event_fd::EventFd;

/// Events taken at a time.
const BATCH: usize = 64;
/// The event of a new connection; tokens of connections are never 0.
const NEW_CONNECTION: u64 = 0;

/// An epoll instance over the sockets of all connections, and an eventfd for new ones.
pub(super) struct Wakeups {
    epoll: OwnedFd,
    new_connections: EventFd,
    connections: Mutex<HashMap<u64, Weak<Connection>>>,
}

impl Wakeups {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let new_connections = EventFd::new()?;
        epoll::add(
            &epoll,
            &new_connections,
            epoll::EventData::new_u64(NEW_CONNECTION),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            new_connections,
            connections: Mutex::default(),
        })
    }

    /// Wakes the target for a new connection.
    pub(super) fn wake(&self) {
        self.new_connections.wake();
    }

    /// Wakes the target whenever `connection`'s peer does, and when the peer is gone.
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

    /// Undoes [`add`](Self::add). Closing the socket is not enough if a forked child holds it too.
    pub(super) fn remove(&self, token: Token, socket: BorrowedFd<'_>) {
        self.table().remove(&token.get());
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Takes one batch of wake-ups out of the sockets, and marks their connections ready.
    pub(super) fn clear(&self) {
        let mut events = Vec::with_capacity(BATCH);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now)).is_err() {
            return;
        }
        for event in events {
            if event.data.u64() == NEW_CONNECTION {
                self.new_connections.clear();
                continue;
            }
            let connection = self.table().get(&event.data.u64()).and_then(Weak::upgrade);
            let Some(connection) = connection else { continue };
            connection.clear_wakeups();
            connection.mark_ready();
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

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
