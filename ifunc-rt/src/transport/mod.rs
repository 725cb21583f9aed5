//! How frames get from one side to the other. One file or folder per transport; nothing above this module
//! knows which one carries a connection.
//!
//! A [`Link`] is one side of a connection: the two directions of [`ifunc_proto::link`], and what is needed to sleep on it.
//! The two sides are alike: source and target are roles of the layers above.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::hello::Hello;
pub(crate) use ifunc_proto::link::{Frame, Inbound, LinkError, Outbound};

use address::Address;
pub(crate) use body::Body;
pub(crate) use config::{ConnectConfig, ListenConfig, MAX_CONNECTIONS, PEER_TIMEOUT, RingSize};
pub(crate) use ends::{Ends, Incoming, Outgoing, Transport, with_link};
pub use error::{ConnectError, ListenError};

pub(crate) mod address;
mod body;
mod config;
mod descriptor_limit;
mod ends;
mod error;
pub(crate) mod event_fd;
mod loopback;
mod other;
mod shm;
#[cfg(feature = "ucx")]
pub(crate) mod ucx;
#[cfg(not(feature = "ucx"))]
#[path = "without_ucx.rs"]
pub(crate) mod ucx;
mod window;
pub(crate) mod worker_address;

/// Makes this process a target at `address`.
///
/// # Errors
/// The address is in use, or the system refuses what the transport needs.
pub(crate) fn listen(address: &Address, config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    for size in [config.to_target, config.to_source] {
        if !size.is_valid() {
            return Err(ListenError::Ring {
                slots: size.slots,
                data: size.data,
            });
        }
    }
    match address {
        Address::Loopback(name) => Ok(Box::new(loopback::listen(name, config)?)),
        Address::Shm(name) => shm::listen(name, config),
        Address::Ucx(at) => ucx::listen(at, &config, ucx::Way::Messages),
        Address::UcxPut(at) => ucx::listen(at, &config, ucx::Way::Puts),
        Address::UcxWorker(None) => ucx::listen_at_worker(&config),
        Address::UcxWorker(Some(_)) => Err(ListenError::Worker),
    }
}

/// How a source reaches its target.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By its address.
    Address(Address),
    /// By an endpoint that the application has.
    #[cfg(feature = "ucx")]
    Endpoint(ucx::Over),
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            #[cfg(feature = "ucx")]
            Self::Endpoint(over) => std::fmt::Debug::fmt(over, f),
        }
    }
}

impl Route {
    /// Connects to the target.
    ///
    /// # Errors
    /// As [`connect_with`].
    pub(crate) fn connect(&self, config: &ConnectConfig, deadline: Instant) -> Result<Link, ConnectError> {
        match self {
            Self::Address(address) => connect_with(address, config, deadline),
            #[cfg(feature = "ucx")]
            Self::Endpoint(over) => over.connect(deadline),
        }
    }
}

/// Connects to the target at `address`.
///
/// # Errors
/// No target listens there, the target refuses, or it does not answer until `deadline`.
pub(crate) fn connect_with(
    address: &Address,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    match address {
        Address::Loopback(name) => loopback::connect(name, config),
        Address::Shm(name) => shm::connect(name, config, deadline),
        Address::Ucx(at) => ucx::connect(at, config, deadline, ucx::Way::Messages),
        Address::UcxPut(at) => ucx::connect(at, config, deadline, ucx::Way::Puts),
        Address::UcxWorker(Some(worker)) => ucx::connect_to_worker(worker, config, deadline),
        Address::UcxWorker(None) => Err(ConnectError::Worker),
    }
}

/// Connects with the default configuration.
#[cfg(test)]
pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Link, ConnectError> {
    connect_with(address, &ConnectConfig::default(), deadline)
}

/// The reason of a target that has as many connections as it accepts.
fn no_more_than(most: usize) -> String {
    format!(
        "it has {most} connections, and takes no more; help: `Target::builder().max_connections(..)` on the target"
    )
}

/// The incoming direction of a link: [`Inbound`] with the runtime's [`Body`], which can be waited for.
pub(crate) trait Rx: for<'a> Inbound<Body<'a> = Body<'a>> + Park + Send + 'static {}

impl<R: for<'a> Inbound<Body<'a> = Body<'a>> + Park + Send + 'static> Rx for R {}

/// Waiting for a link without polling it.
pub(crate) trait Park {
    /// Announces that this side goes to sleep: from now until [`disarm`](Self::disarm) the peer wakes it for frames and for
    /// credits. `false` if a frame has arrived or the peer is gone: then do not sleep for frames. Before it sleeps for
    /// credits, the caller tries [`reserve`](Outbound::reserve) once more: credits may have arrived before the announcement.
    fn arm(&mut self) -> bool;

    /// Withdraws the announcement of [`arm`](Self::arm) and of [`park`](Self::park).
    fn disarm(&mut self);

    /// A target announces that it polls this link only after its listener [reports](Listener::ready) it, for frames, for
    /// credits and for the peer's end. The announcement holds after the listener's next [`fence`](Listener::fence); a link
    /// that is not [idle](Self::is_idle) then is polled again.
    fn park(&mut self);

    /// Whether no frame has arrived and the peer is not known to be gone. Call it after [`park`](Self::park) and the fence.
    fn is_idle(&mut self) -> bool;
}

/// Which link of its listener's. A number may be used again when its link is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

/// The peer's credentials, as the kernel reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// User id; `None` where the transport cannot know.
    pub(crate) uid: Option<u32>,
    /// Process id, for people.
    pub(crate) pid: Option<i32>,
}

/// Sleeping on a link's own, for a source. A target sleeps on its listener's bell.
pub(crate) trait Waiter: Send + Sync {
    /// Sleeps until the peer sends a wake-up or is gone, `woken` is readable, or the deadline passes. Spurious wake-ups happen.
    /// The caller has armed the link.
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        self.sleep_on_bell(until, woken);
    }

    /// The default [`sleep`](Self::sleep).
    fn sleep_on_bell(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        if self.is_gone() {
            return;
        }
        let until = self
            .attention()
            .map_or(until, |often| until.min(Instant::now() + often));
        if event_fd::wait_readable_either(self.bell(), woken, until) {
            self.silence();
        }
    }

    /// Longest time between two polls, where the transport detects some events, such as a peer's end, only in polls. `None`:
    /// the bell reports every event.
    fn attention(&self) -> Option<Duration> {
        None
    }

    /// Readable when `sleep` would return for the peer's sake. For event loops.
    fn bell(&self) -> BorrowedFd<'_>;

    /// Makes `bell` unreadable until the peer's next wake-up.
    fn silence(&self);

    /// Closes this side of the link and wakes all threads that sleep on it.
    fn close(&self);

    /// Whether any thread may use the link, or only the thread that made it.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// What carries the connection, as the transport describes it, for people. May cost microseconds.
    fn carried_by(&self) -> String;

    /// Whether the peer is known to be gone. Costs one load; the transport detects it in the background.
    fn is_gone(&self) -> bool;

    /// Whether the peer is gone, checked now: on a busy machine the background thread may be late. May cost a system call.
    fn ask_gone(&self) -> bool {
        self.is_gone()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.peer)
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// One side of a connection.
pub(crate) struct Link {
    pub(crate) tx: Outgoing,
    pub(crate) rx: Incoming,
    pub(crate) waiter: Arc<dyn Waiter>,
    pub(crate) peer: Peer,
    /// What the peer stated about itself.
    pub(crate) hello: Hello,
    /// What a target's listener names the link by. Unused on the source's side.
    pub(crate) key: Key,
}

/// What a target accepts links by.
///
/// Links that are [parked](Park::park) cost nothing: a poll reads the others, and what `ready` returns.
pub(crate) trait Listener: Send {
    /// The address that a source connects to, as text.
    fn address(&self) -> String;

    /// The next new connection. Never blocks; costs one load when there is none.
    fn accept(&mut self) -> Option<Link>;

    /// Readable when a peer sent a wake-up, connected or closed. One descriptor for all links of the listener.
    fn bell(&self) -> BorrowedFd<'_>;

    /// Adds the parked links that have an event: they are no longer parked. A link without an event, and one that is gone,
    /// may be among them. Never blocks, and costs next to nothing if there is none, however many links are parked.
    fn ready(&mut self, keys: &mut Vec<Key>);

    /// Makes the announcements of [`Park::park`] hold: one barrier for all of them.
    fn fence(&self);

    /// Clears the bell, and announces that the target is about to sleep on it. From now until [`disarm`](Self::disarm) an
    /// event of a parked link and a new connection make it readable, also if another thread polls meanwhile and finds the
    /// event first. The caller then checks for earlier events: it may sleep if all links are parked and idle, none is `ready`
    /// and none is to be accepted.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// Whether any thread may use the listener and its links, or only the thread that made them.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// Empty polls between two clock reads, which then cost little beside them. It bounds how late a poller goes to sleep.
    fn pace(&self) -> u32 {
        64
    }
}
