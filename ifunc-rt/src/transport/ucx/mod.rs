//! Processes of any hosts, over UCX's active messages; or by its puts, see [`put`].
//!
//! UCX is found when it is needed; nothing is linked. Each listener and each source's link has a context and a worker of
//! its own ([`engine`], with [`endpoints`] and [`sends`]), used under one [`lock`]. UCX's callbacks only write down what happened ([`inbox`]); what follows from
//! it is decided when UCX has returned ([`dispatch`], [`door`], [`leaving`]). A source connects to the address of UCX's listener, says what it is
//! and hears what the target takes ([`handshake`]). Each frame is an active message ([`header`]), sent from the memory that
//! it was encoded in ([`parcel`]); UCX sends small ones eagerly and lets large ones be fetched. What may be under way is
//! bounded by credits ([`credits`]), so that a peer cannot make this process take memory without limit. Messages may
//! overtake each other; frames are put in order before their credits are given back.
//!
//! UCX works when it is let: in every look for frames. A large body is fetched with its sender's help, and what a full
//! socket did not take is sent later, so a source that sends and then does nothing keeps the end of it to itself until its
//! next call; leaving is one.
//!
//! Whoever leaves says how many frames it sent, and waits for a while to hear that they came. How soon a peer that died or
//! vanished is noticed, and which devices are used, is in [`settings`].
//!
//! **Where it was tested.** Over TCP and shared memory only. On RDMA hardware it was not.
//!
//! **Who may connect.** Whoever reaches a UCX worker is trusted with its process's memory: over TCP and shared memory UCX
//! writes where a peer's message says, and UCX 1.13 aborts its process on some bytes that are none of its own. A target listens on this host's loopback device unless told otherwise, and says
//! who can reach it. On loopback, that is every user of the host.

use std::sync::Arc;
use std::time::Instant;

use engine::Engine;

use super::address::{HostPort, WorkerAddress};
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

mod arming;
mod attempts;
mod borrowed;
mod credits;
mod dispatch;
mod door;
mod endpoints;
mod engine;
mod handshake;
mod header;
mod inbox;
mod leaving;
mod link;
mod listener;
mod lock;
mod parcel;
mod put;
mod sends;
mod settings;
mod silence;
mod source;
mod table;

pub(super) use handshake::Way;

/// Makes this process the target at `at`.
pub(super) fn listen(
    at: &HostPort,
    config: &ListenConfig,
    way: Way,
) -> Result<Box<dyn Listener>, ListenError> {
    listener::listen(at, config, way)
}

/// Makes this process a target that is known by the address of its worker.
pub(super) fn listen_at_worker(config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    listener::listen_at_worker(config)
}

/// Connects to the target at `at`.
pub(super) fn connect(
    at: &HostPort,
    config: &ConnectConfig,
    deadline: Instant,
    way: Way,
) -> Result<Link, ConnectError> {
    source::connect(at, config, deadline, way)
}

/// Connects to the target whose worker has this address.
pub(super) fn connect_to_worker(
    to: &WorkerAddress,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    source::connect_to_worker(to, config, deadline)
}

pub(crate) use borrowed::{Terms, Unfit};
pub(crate) use source::{Calling, Over};

/// A worker of the application's, borrowed.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Engine>);

impl Lent {
    /// # Safety
    /// As [`ifunc_rt::ucx::Worker::from_raw`](crate::ucx::Worker::from_raw) has it.
    pub(crate) unsafe fn new(
        ucx: &'static ucx_sys::Ucx,
        context: ucx_sys::ucp_context_h,
        worker: ucx_sys::ucp_worker_h,
        terms: Terms,
    ) -> Result<Self, Unfit> {
        // SAFETY: the caller's promise.
        unsafe { Engine::borrow(ucx, context, worker, terms) }.map(Self)
    }

    /// Takes in what happened.
    pub(crate) fn poll(&self) -> bool {
        self.0.lock().progress()
    }

    /// A way to the target behind an endpoint.
    pub(crate) fn over(&self, ep: ucx_sys::ucp_ep_h) -> Over {
        Over::new(&self.0, ep)
    }

    /// The application knows that the peer of an endpoint is gone.
    pub(crate) fn peer_gone(&self, ep: ucx_sys::ucp_ep_h) {
        self.0.lock().peer_gone(ep);
    }

    /// `false`: another thread must.
    pub(crate) fn let_go(&self) -> bool {
        self.0.let_go()
    }

    /// Makes this process a target on it.
    pub(crate) fn listen(&self, config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
        listener::listen_on(&self.0, config)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
