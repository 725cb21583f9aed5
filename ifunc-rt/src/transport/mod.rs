//! How frames get from one side to the other. One file or folder per transport; nothing above this module
//! knows which one carries a connection.
//!
//! A [`Link`] is one side of a connection: the two directions of [`ifunc_proto::link`], and what is needed to sleep on it.
//! The two sides are alike: source and target are roles of the layers above.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use ifunc_proto::link::{Frame, FrameRun, Inbound, LinkError, MIN_RUN, Outbound, Reserved};

use address::Address;
pub(crate) use body::{Body, assert_fits};
#[cfg(test)]
pub(crate) use boxed::{Rx, Tx};
pub(crate) use config::{ConnectConfig, ListenConfig, MAX_RING, PEER_TIMEOUT, RingSize};
pub use error::{ConnectError, ListenError};
#[cfg(feature = "tls")]
pub(crate) use link::Certified;
pub(crate) use link::{Ends, Key, Link, Pair, Park, Peer, Waiter, with_link};

pub(crate) mod address;
mod body;
mod boxed;
mod config;
mod error;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(any(feature = "ucx", feature = "tls"))]
mod half_open;
mod handshake;
mod link;
mod loopback;
mod nontemporal;
mod prefetch;
mod shm;
#[cfg(any(feature = "ucx", feature = "tls"))]
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(all(test, not(loom), feature = "tls"))]
pub(crate) use tls::tests::authority;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
#[cfg(feature = "ucx")]
pub(crate) mod ucx;
#[cfg(not(feature = "ucx"))]
#[path = "without_ucx.rs"]
pub(crate) mod ucx;
mod watch;
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
        Address::Loopback(name) => loopback::listen(name, config),
        Address::Shm(name) => shm::listen(name, config),
        Address::Tls(at) => tls::listen(at, config),
        Address::UcxWorker(Some(_)) => Err(ListenError::Worker),
        Address::Ucx(_) | Address::UcxPut(_) | Address::UcxWorker(None) => ucx::listen(address, &config),
    }
}

/// How a source reaches its target.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By its address.
    Address(Address),
    /// By the means of this process's listener, if they lead to the address; otherwise as by the address alone.
    Beside(Arc<dyn Connector>, Address),
    /// By an endpoint that the application has.
    #[cfg(feature = "ucx")]
    Endpoint(ucx::Over),
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) | Self::Beside(_, address) => address.fmt(f),
            #[cfg(feature = "ucx")]
            Self::Endpoint(over) => std::fmt::Debug::fmt(over, f),
        }
    }
}

impl Route {
    /// Connects to the target.
    ///
    /// # Errors
    /// No target listens there, the target refuses, or it does not answer until `deadline`.
    pub(crate) fn connect(&self, config: &ConnectConfig, deadline: Instant) -> Result<Link, ConnectError> {
        let address = match self {
            Self::Address(address) => address,
            Self::Beside(connector, address) => match connector.connect(address, config, deadline) {
                Some(result) => return result,
                None => address,
            },
            #[cfg(feature = "ucx")]
            Self::Endpoint(over) => return over.connect(deadline),
        };
        match address {
            Address::Loopback(name) => loopback::connect(name, config),
            Address::Shm(name) => shm::connect(name, config, deadline),
            Address::Tls(at) => tls::connect(at, config, deadline),
            Address::UcxWorker(None) => Err(ConnectError::Worker),
            Address::Ucx(_) | Address::UcxPut(_) | Address::UcxWorker(Some(_)) => {
                ucx::connect(address, config, deadline)
            }
        }
    }
}

/// Connects with the default configuration.
#[cfg(test)]
pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Link, ConnectError> {
    Route::Address(address.clone()).connect(&ConnectConfig::default(), deadline)
}

/// The reason of a target that has as many connections as it accepts.
fn no_more_than(most: usize) -> String {
    format!(
        "it has {}, and takes no more; help: `Target::builder().max_connections(..)` on the target",
        ifunc_abi::Counted(most, "connection")
    )
}

/// What a target accepts links by.
///
/// Links that are [parked](Park::park) cost nothing: a poll reads the others, and what `ready` returns.
pub(crate) trait Listener: Send {
    /// The address that a source connects to, as text.
    fn address(&self) -> String;

    /// States the number of this node, or that it is none, in the hellos of later connections.
    fn set_node(&mut self, node: Option<u32>);

    /// The next new connection. Never blocks; costs one load when there is none.
    fn accept(&mut self) -> Option<Link>;

    /// Whether [`accept`](Self::accept) may find one. Costs one load.
    fn has_waiting(&self) -> bool {
        true
    }

    /// Readable when a peer sent a wake-up, connected or closed. One descriptor for all links of the listener.
    fn doorbell(&self) -> BorrowedFd<'_>;

    /// Adds the parked links that have an event: they are no longer parked. A link without an event, and one that is gone,
    /// may be among them. Never blocks, and costs next to nothing if there is none, however many links are parked.
    fn ready(&mut self, keys: &mut Vec<Key>);

    /// The longest time between two looks at every parked link, where a peer can keep [`ready`](Self::ready) from naming the link
    /// of another one. `None`: no peer can.
    fn look_interval(&self) -> Option<Duration> {
        None
    }

    /// Makes the announcements of [`Park::park`] hold: one barrier for all of them.
    fn fence(&self);

    /// Clears the doorbell, and announces that the target is about to sleep on it. From now until [`disarm`](Self::disarm) an
    /// event of a parked link and a new connection make it readable, also if another thread polls meanwhile and finds the
    /// event first. The caller then checks for earlier events: it may sleep if all links are parked and idle, none is `ready`
    /// and none is to be accepted.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// Makes links by the means of this listener, which then names them as it names those that it accepts. `None`: each link has means
    /// of its own.
    fn connector(&self) -> Option<Arc<dyn Connector>> {
        None
    }

    /// Whether any thread may use the listener and its links, or only the thread that made them.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// What surrounds each poll of all links by one thread, where the transport makes something of that.
    fn poll_scope(&self) -> Option<Arc<dyn PollScope>> {
        None
    }

    /// Whether a poll of a link reads memory that its source is about to write, so that each of the two can wait for the other's cache.
    fn reads_slots(&self) -> bool {
        false
    }

    /// Empty polls between two clock reads, which then cost little beside them. It bounds how late a poller goes to sleep.
    fn pace(&self) -> u32 {
        64
    }
}

/// A poll of all links of a listener, by one thread.
pub(crate) trait PollScope: Send + Sync {
    /// It begins: the transport looks for what has arrived, and polls of links find no more than that. `false`: it has found nothing, neither
    /// for the links nor for the listener; but another thread may have found something before.
    fn begin(&self) -> bool;

    /// It ends: what it has sent is on its way.
    fn end(&self);

    /// Whether the next one would find nothing, since all that had arrived was taken, and what follows from the frames sent since cannot be
    /// there yet. Says so once: the next one looks.
    fn passes(&self) -> bool;
}

/// Makes links by the means of a listener, on another thread than the one that serves: to poll the listener is to poll them all.
pub(crate) trait Connector: std::fmt::Debug + Send + Sync {
    /// Connects to a target. `None`: the listener's means do not lead there.
    fn connect(
        &self,
        to: &Address,
        config: &ConnectConfig,
        deadline: Instant,
    ) -> Option<Result<Link, ConnectError>>;
}
