//! Listeners, and the peers that connect to them.

use std::net::SocketAddr;
use std::sync::Arc;

use ucx_sys::ucp_conn_request_h;

use crate::shared::{Deferred, Shared};

/// Where peers connect. When it is dropped, its worker stops listening, at its next progress.
#[derive(Debug)]
pub struct Listener {
    pub(crate) serial: u64,
    pub(crate) worker: u64,
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

/// A peer that connects. It is [accepted](crate::Worker::accept) or [rejected](crate::Worker::reject).
#[derive(Debug)]
#[must_use = "the peer waits for an answer"]
pub struct ConnectionRequest {
    pub(crate) worker: u64,
    /// The listener's number: UCX needs it alive to answer.
    pub(crate) listener: u64,
    pub(crate) raw: ucp_conn_request_h,
}

// SAFETY: the handle is used with the token of its worker alone.
unsafe impl Send for ConnectionRequest {}
// SAFETY: as above.
unsafe impl Sync for ConnectionRequest {}

impl Listener {
    /// Where it listens: with the port that the system chose, if none was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.defer(Deferred::Listener(self.serial));
    }
}
