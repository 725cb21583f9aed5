//! How frames get from one side to the other. One file or folder per transport; nothing above this module
//! knows which one carries a connection.
//!
//! A [`Link`] is one side of a connection: frames out, frames in, and a way to sleep. The two sides are
//! alike; who is source and who is target is the business of the layers above.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Limits};

use address::Address;
pub(crate) use config::{ConnectConfig, ListenConfig, MAX_CONNECTIONS, PEER_TIMEOUT, RingSize};
pub(crate) use ends::{Either, Incoming, Outgoing};
pub use error::{ConnectError, ListenError};
pub(crate) use shm::{Incoming as ShmIncoming, is_inline as shm_is_inline};

pub(crate) mod address;
mod bell;
mod config;
mod descriptors;
mod ends;
mod error;
mod loopback;
mod shm;
pub(crate) mod ucx;
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
    Endpoint(ucx::Over),
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
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
            Self::Endpoint(over) => over.connect(deadline),
        }
    }
}

/// Connects to the target at `address`.
///
/// # Errors
/// Nobody listens there, the target refuses, or it does not answer until `deadline`.
pub(crate) fn connect_with(
    address: &Address,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    match address {
        Address::Loopback(name) => loopback::connect(name),
        Address::Shm(name) => shm::connect(name, deadline),
        Address::Ucx(at) => ucx::connect(at, config, deadline, ucx::Way::Messages),
        Address::UcxPut(at) => ucx::connect(at, config, deadline, ucx::Way::Puts),
        Address::UcxWorker(Some(worker)) => ucx::connect_to_worker(worker, config, deadline),
        Address::UcxWorker(None) => Err(ConnectError::Worker),
    }
}

/// Connects with what a source chooses that chooses nothing.
#[cfg(test)]
pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Link, ConnectError> {
    connect_with(address, &ConnectConfig::default(), deadline)
}

/// Why a target is busy that has as many connections as it may have.
fn no_more_than(most: usize) -> String {
    format!(
        "it has {most} connections, and takes no more; help: `Target::builder().max_connections(..)` on the target"
    )
}

/// The other side is gone, or broke the transport's rules. Whatever it sent before was delivered first.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Gone {
    /// It closed the connection or died.
    #[error("the peer closed the connection or died")]
    Closed,
    /// It wrote something that this transport never writes.
    #[error("the peer broke the protocol: {0}")]
    Malformed(&'static str),
}

/// Frames out.
pub(crate) trait Outbound: Send {
    /// Largest body of one frame. Larger ones travel in fragments, which the layers above cut.
    fn max_body(&self) -> usize;

    /// Room for a frame with a body of at most `len` bytes, aligned to `align` (at most
    /// [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN)); `None` while the peer has not consumed enough. A second
    /// `reserve` without `commit` replaces the first.
    ///
    /// # Panics
    /// When `len` is larger than [`max_body`](Self::max_body): the layers above see to it.
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, Gone>;

    /// Publishes the last `reserve`, of which the first `len` bytes are the body, and returns its sequence
    /// number. Rings if the peer sleeps.
    fn commit(&mut self, header: Header, len: usize) -> u32;

    /// Whether the peer, as far as it has said, has not consumed this sequence number yet. Asked when the
    /// peer is gone; a transport that cannot know says `true`.
    fn is_unconsumed(&mut self, _sequence: u32) -> bool {
        true
    }
}

/// A frame as it lies in the transport's memory. The words were copied out once; the body may be changed by
/// the peer at any time while it is looked at, if the transport is shared memory.
pub(crate) struct Arrived<'a> {
    /// Sequence number; transports may deliver out of order.
    pub(crate) sequence: u32,
    /// Words 1 and 2, not judged yet.
    pub(crate) words: [u64; 2],
    /// The body.
    pub(crate) body: Body<'a>,
}

/// Bytes that a peer may still be able to write.
#[derive(Clone, Copy)]
pub(crate) struct Body<'a> {
    ptr: *const u8,
    len: usize,
    memory: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Body<'a> {
    /// # Safety
    /// `ptr` must stay readable for `len` bytes during `'a`.
    pub(crate) unsafe fn new(ptr: *const u8, len: usize) -> Self {
        Self {
            ptr,
            len,
            memory: std::marker::PhantomData,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends the bytes to `out`: read once, whatever the peer does meanwhile.
    pub(crate) fn copy_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        // SAFETY: readable for `len` by the constructor's contract; room was reserved; the ranges cannot
        // overlap because `out` owns its memory. A concurrent writer can only make the copied bytes
        // arbitrary.
        unsafe {
            std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr().add(out.len()), self.len);
            out.set_len(out.len() + self.len);
        }
    }

    /// A part of it: `len` bytes from `at` on; `None` if there are fewer.
    pub(crate) fn part(&self, at: usize, len: usize) -> Option<Self> {
        if self.len.checked_sub(at)? < len {
            return None;
        }
        // SAFETY: `at` is at most `len`, and the part lies within what stays readable by the constructor's contract.
        Some(unsafe { Self::new(self.ptr.add(at), len) })
    }

    /// Copies the first bytes to `out`; `false` if there are fewer than it holds.
    pub(crate) fn prefix(&self, out: &mut [u8]) -> bool {
        if self.len < out.len() {
            return false;
        }
        // SAFETY: readable for `len` by the constructor's contract; `out` is no longer and, being `&mut`,
        // elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies the bytes to `out`, which must be as long: read once, whatever the peer does meanwhile.
    pub(crate) fn copy_to_slice(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "the caller measured");
        // SAFETY: readable for `len` by the constructor's contract; `out` is as long and, being `&mut`,
        // elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr(), self.len) };
    }
}

/// Frames in.
pub(crate) trait Inbound: Send {
    /// The next frame, if one has arrived; the same one until [`release`](Self::release).
    ///
    /// # Errors
    /// [`Gone`], once everything that arrived was released.
    fn peek(&mut self) -> Result<Option<Arrived<'_>>, Gone>;

    /// Whether [`peek`](Self::peek) would say that nothing has arrived, as the look that this is finds. `false` also where only
    /// it can know.
    fn finds_nothing(&mut self) -> bool {
        false
    }

    /// Gives the memory of the frame that `peek` returned back to the peer.
    fn release(&mut self);

    /// Publishes the credits of all that was released. Called when nothing more has arrived.
    fn settle(&mut self);

    /// Announces that this side is about to sleep and must be rung, for frames as for credits, until
    /// [`disarm`](Self::disarm); `false` if a frame is there (or the peer is gone): then do not sleep for
    /// frames. Who waits for credits tries [`reserve`](Outbound::reserve) once more between this and the
    /// sleep: they may have come in the meantime, too.
    fn arm(&mut self) -> bool;

    /// Takes the announcement back, that of [`rest`](Self::rest) too.
    fn disarm(&mut self);

    /// A target's: announces that this side looks here no more until its listener [names](Listener::ready) the link: for
    /// frames, for credits, for the peer's end. It holds from the listener's next [`fence`](Listener::fence) on; who is
    /// not [quiet](Self::is_quiet) then is looked at again.
    fn rest(&mut self);

    /// Whether no frame is there and the peer not known to be gone. Asked behind [`rest`](Self::rest) and the fence.
    fn is_quiet(&mut self) -> bool;
}

/// Which link of its listener's. A number may be used again when its link is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

/// Who is on the other side, as far as the kernel vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// User id; `None` where the transport cannot know.
    pub(crate) uid: Option<u32>,
    /// Process id, for people.
    pub(crate) pid: Option<i32>,
}

/// Sleeping on a link's own, for a source. A target sleeps on its listener's bell.
pub(crate) trait Waiter: Send + Sync {
    /// Sleeps until the peer rang, is gone, `woken` is readable, or `until`. May wake for nothing. The caller has armed.
    fn sleep(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        self.sleep_on_bell(until, woken);
    }

    /// What [`sleep`](Self::sleep) does where a transport knows nothing better.
    fn sleep_on_bell(&self, until: Instant, woken: Option<BorrowedFd<'_>>) {
        if self.is_gone() {
            return;
        }
        let until = self
            .attention()
            .map_or(until, |often| until.min(Instant::now() + often));
        if bell::sleep_on_either(self.bell(), woken, until) {
            self.silence();
        }
    }

    /// How often frames must be looked for whatever the bell says, because the transport notices some things, such as
    /// a peer's end, only then. `None`: the bell says everything.
    fn attention(&self) -> Option<Duration> {
        None
    }

    /// Readable when `sleep` would return for the peer's sake. For event loops.
    fn bell(&self) -> BorrowedFd<'_>;

    /// Makes `bell` unreadable until the peer rings again.
    fn silence(&self);

    /// Wakes everybody who sleeps, for good: this side has no use for the link any more.
    fn close(&self);

    /// Whether any thread may use the link, or only that which made it.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// What carries the connection, for people: the transport's own account, asked now. May cost microseconds.
    fn carried_by(&self) -> String;

    /// Whether the peer is known to be gone. Costs one load; the transport watches in the background.
    fn is_gone(&self) -> bool;

    /// Whether the peer is gone, asked now: on a busy machine the watch in the background may be late. May cost a system call.
    fn ask_gone(&self) -> bool {
        self.is_gone()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.peer)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// One side of a connection.
pub(crate) struct Link {
    pub(crate) tx: Outgoing,
    pub(crate) rx: Incoming,
    pub(crate) waiter: Arc<dyn Waiter>,
    pub(crate) peer: Peer,
    /// What the target said it takes (on the target: what it said).
    pub(crate) limits: Limits,
    /// A number that the target chose for this run of itself: another one after a restart.
    pub(crate) epoch: u64,
    /// By which a target's listener names the link; a source's has none.
    pub(crate) key: Key,
}

/// Where a target is reached.
///
/// Links that [rest](Inbound::rest) cost nothing: a look is a look at the others, and at what `ready` says.
pub(crate) trait Listener: Send {
    /// The address that a source connects to, as text.
    fn address(&self) -> String;

    /// A connection that was made meanwhile. Never blocks; costs one load when there is none.
    fn accept(&mut self) -> Option<Link>;

    /// Readable when a peer rang, connected or left. One bell for all links of the listener.
    fn bell(&self) -> BorrowedFd<'_>;

    /// Adds the links that rested and that something happened to: they rest no more. One that nothing happened to, and one
    /// that is gone, may be among them. Never blocks; costs next to nothing where there is none, however many rest.
    fn ready(&mut self, keys: &mut Vec<Key>);

    /// Makes the announcements of [`Inbound::rest`] hold: one barrier for however many.
    fn fence(&self);

    /// Stops the bell, and announces that the target is about to sleep on it: from now until [`disarm`](Self::disarm) it
    /// rings for whatever happens to links that rest, and for new ones, also where another thread that looks meanwhile is the
    /// first to see it. What happened before is still to be asked for: all
    /// links rest and are quiet, nothing is `ready`, nobody is to be accepted; then it may sleep.
    fn arm(&mut self);

    /// Takes the announcement back.
    fn disarm(&mut self);

    /// Whether any thread may use the listener and its links, or only that which made them.
    fn serves_any_thread(&self) -> bool {
        true
    }

    /// How many looks in vain are between two at the clock, which then costs little beside them. So much later, at most, than
    /// it meant to does whoever looks fall asleep.
    fn pace(&self) -> u32 {
        64
    }
}
