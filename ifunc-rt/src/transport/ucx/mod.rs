//! Processes of any hosts, over UCX's active messages; or by its puts, see [`put`].
//!
//! UCX is found when it is needed; nothing is linked. Each listener and each source's link has a context and a worker of
//! its own ([`engine`], with [`requests`]), used under one [`lock`]. UCX's callbacks only fill an event queue ([`events`]); what follows from
//! it is decided when UCX has returned ([`dispatch`], [`acceptor`], [`closing`]). A source connects to the address of UCX's listener and sends a
//! hello, which the target answers ([`handshake`]). Each frame is an active message ([`header`]), sent from the buffer that
//! it was encoded in ([`packet`]); UCX sends small ones eagerly and lets large ones be fetched. What may be under way is
//! bounded by credits ([`credits`]), so that a peer cannot make this process take memory without limit. Messages may
//! overtake each other; frames are put in order before their credits are given back.
//!
//! UCX makes progress in every poll for frames. A large body is fetched with its sender's help, and what a full
//! socket did not take is sent later, so a source that sends and then does nothing keeps the end of it to itself until its
//! next call; closing is one.
//!
//! A side that closes a connection says in its `FIN` how many frames it sent, and waits for a bounded time for the `FIN_ACK`. How soon a peer
//! that died or vanished is noticed, and which devices are used, is in [`settings`].
//!
//! **Where it was tested.** Over TCP and shared memory only. On RDMA hardware it was not.
//!
//! **Trust.** Every process that reaches a UCX worker is trusted with its process's memory: over TCP and shared memory UCX
//! writes where a peer's message says, and UCX 1.13 aborts its process on some bytes that are not its own. A target listens on this host's
//! loopback device unless told otherwise, and logs from where it can be reached. On loopback, that is every user of the host.

use std::sync::Arc;
use std::time::Instant;

use ::ucx::{EndpointId, Library, raw};
use engine::Engine;

use super::address::{HostPort, WorkerAddress};
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

mod acceptor;
mod arming;
mod attached;
mod attempts;
mod closing;
mod credits;
mod dispatch;
mod engine;
mod events;
mod handshake;
mod header;
mod link;
mod listener;
mod lock;
mod packet;
mod put;
mod requests;
mod settings;
mod source;
mod table;
mod tcp_watch;

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

pub(crate) use attached::{Terms, Unfit};
pub(crate) use source::{Calling, Over};

/// A worker of the application's, attached to.
#[derive(Clone)]
pub(crate) struct Attachment(Arc<Engine>);

impl Attachment {
    /// # Safety
    /// As [`ifunc_rt::ucx::Worker::from_raw`](crate::ucx::Worker::from_raw) has it.
    pub(crate) unsafe fn new(
        ucx: Library,
        context: raw::ucp_context_h,
        worker: raw::ucp_worker_h,
        terms: Terms,
    ) -> Result<Self, Unfit> {
        // SAFETY: the caller's promise.
        unsafe { Engine::attach(ucx, context, worker, terms) }.map(Self)
    }

    /// Dispatches what has happened.
    pub(crate) fn poll(&self) -> bool {
        self.0.lock().progress()
    }

    /// The way to the target at the other end of an endpoint.
    ///
    /// # Safety
    /// The endpoint is of the worker, and alive until [`peer_gone`](Self::peer_gone).
    pub(crate) unsafe fn over(&self, ep: raw::ucp_ep_h) -> Over {
        // SAFETY: the caller's promise.
        unsafe { Over::new(&self.0, EndpointId::of_raw(ep)) }
    }

    /// The application knows that the peer of an endpoint is gone.
    pub(crate) fn peer_gone(&self, ep: raw::ucp_ep_h) {
        self.0.lock().peer_gone(EndpointId::of_raw(ep));
    }

    /// `false`: another thread must.
    pub(crate) fn detach(&self) -> bool {
        self.0.detach()
    }

    /// Makes this process a target on it.
    pub(crate) fn listen(&self, config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
        listener::listen_on(&self.0, config)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
