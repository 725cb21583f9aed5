//! Sleeping until the peer of one connection rings.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::connection::Connection;
use crate::transport::Waiter;

/// Sleeps on the connection's socket.
pub(super) struct SocketWaiter(Arc<Connection>);

impl SocketWaiter {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(connection)
    }
}

impl Waiter for SocketWaiter {
    fn bell(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }

    fn silence(&self) {
        self.0.drain();
    }

    fn close(&self) {
        self.0.close();
    }

    fn carried_by(&self) -> String {
        "shm".into()
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn ask_gone(&self) -> bool {
        self.0.look();
        self.0.is_gone()
    }
}
