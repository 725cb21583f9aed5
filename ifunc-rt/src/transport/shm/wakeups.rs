//! What wakes a target: its ready bitmap, and one descriptor for new connections and for the wake-ups and ends of those that
//! it has.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::ready::ConnectionSlots;
use crate::os::{Epoll, EventFd, EventFlags};
use crate::transport::watch::{Token, Watch, Watcher};

/// The event of a new connection; tokens of connections are never 0.
const NEW_CONNECTION: u64 = 0;

/// An epoll instance over the sockets of all connections, an eventfd for new ones, and the ready bitmap.
pub(super) struct Wakeups {
    epoll: Epoll,
    new_connections: EventFd,
    watcher: Arc<Watcher>,
    pub(super) slots: ConnectionSlots,
    /// Connections whose sources share the ready bitmap.
    shown: AtomicUsize,
}

/// A connection's slot in the ready bitmap.
pub(super) struct ConnectionSlot {
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) bit: u32,
    /// The source can set the bit.
    pub(super) is_shown: bool,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if !self.wakeups.watcher.is_forked() {
            self.wakeups.slots.free(self.bit);
            if self.is_shown {
                self.wakeups.shown.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Wakeups {
    pub(super) fn new(watcher: Arc<Watcher>, max_connections: usize) -> io::Result<Self> {
        let wakeups = Self {
            epoll: Epoll::new()?,
            new_connections: EventFd::new()?,
            watcher,
            slots: ConnectionSlots::new(max_connections)?,
            shown: AtomicUsize::new(0),
        };
        wakeups
            .epoll
            .add(&wakeups.new_connections, NEW_CONNECTION, EventFlags::IN)?;
        Ok(wakeups)
    }

    /// A slot for a connection. `None`: there are too many.
    pub(super) fn allocate(self: &Arc<Self>, is_shown: bool) -> Option<ConnectionSlot> {
        let bit = self.slots.allocate()?;
        if is_shown {
            self.shown.fetch_add(1, Ordering::Relaxed);
        }
        let wakeups = Arc::clone(self);
        Some(ConnectionSlot {
            wakeups,
            bit,
            is_shown,
        })
    }

    /// Whether a source can clear the bit of another one.
    pub(super) fn is_shared(&self) -> bool {
        self.shown.load(Ordering::Relaxed) > 1
    }

    /// Wakes the target for a new connection.
    pub(super) fn wake(&self) {
        self.new_connections.wake();
    }

    /// Wakes the target whenever the peer at this socket does, and when the peer is gone.
    pub(super) fn add(&self, socket: &Watch) -> rustix::io::Result<()> {
        self.epoll
            .add(socket, socket.token().0, EventFlags::IN | EventFlags::RDHUP)
    }

    /// Undoes [`add`](Self::add). Closing the socket is not enough if a forked child holds it too.
    pub(super) fn remove(&self, socket: &Watch) {
        self.epoll.remove(socket);
    }

    /// Takes one batch of wake-ups out of the sockets, and marks their connections ready.
    pub(super) fn clear(&self) {
        let woken = |token| {
            if token == NEW_CONNECTION {
                self.new_connections.clear();
            } else if let Some(connection) = self.watcher.find(Token(token)) {
                connection.woken();
            }
        };
        // It fails only for reasons that no instance of this process has.
        let _ = self.epoll.wait(Some(Duration::ZERO), woken);
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
