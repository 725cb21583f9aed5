//! Sleeping until the peer of one connection rings.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use super::connection::Connection;
use crate::transports::Waiter;
use crate::transports::bell::sleep_on;

/// Sleeps on the connection's socket.
pub(super) struct SocketWaiter(Arc<Connection>);

impl SocketWaiter {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }
}

impl Waiter for SocketWaiter {
    fn sleep(&self, until: Instant) {
        if !self.0.is_gone() && sleep_on(self.0.socket(), until) {
            self.0.drain();
        }
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }

    fn silence(&self) {
        self.0.drain();
    }

    fn close(&self) {
        self.0.close();
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn ask_gone(&self) -> bool {
        self.0.look();
        self.0.is_gone()
    }
}
