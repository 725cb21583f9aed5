//! One side of a connection: the segment, and the socket that wakes the peer and reports its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use ifunc_abi::hello::Hello;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::barrier::Barriers;
use super::layout::{Apart, SET_BIT, Side, WAKE};
use super::mapped::Mapped;
use super::ready::{ConnectionSlots, ReadyBitmap};
use super::ring::consumer::Consumer;
use super::ring::producer::Producer;
use super::segment::Segment;
use super::wakeups::Wakeups;
use super::watch::{Token, Watched, Watcher};
use crate::transport::{Ends, Key, Link, Pair, Peer, Waiter};

/// Messages taken from the socket at a time. It bounds the time that a peer can cost by sending them.
const WAKEUPS_AT_ONCE: usize = 16;

/// One side of a connection. The parts of a [`Link`] share it; it closes when the last of them is dropped.
pub(super) struct Connection {
    pub(super) segment: Segment,
    pub(super) side: Side,
    pub(super) barriers: Barriers,
    /// Closed by the kernel when the peer's process ends, however it ends. A byte on it is a wake-up. (An eventfd
    /// would be one file for both processes: the peer could take this side's wake-ups out of it, or make it block.)
    socket: OwnedFd,
    gone: AtomicBool,
    watched: (Arc<Watcher>, Token),
    /// The process that made the connection. A forked child shares the sockets and must not shut them down.
    process: u32,
    ready_bit: ReadyBit,
    /// A target's: what its listener sleeps on.
    wakeups: OnceLock<Arc<Wakeups>>,
}

/// Where a connection is in its target's ready bitmap.
pub(super) enum ReadyBit {
    /// A source that was not given the bitmap: it sends wake-ups over the socket.
    None,
    /// A source's: the bitmap, and its bit.
    Source(ReadyBitmap, u32),
    /// A target's: the bit, and whether the source can set it.
    Target(Arc<ConnectionSlots>, u32, bool),
}

impl Connection {
    /// `socket` is connected, non-blocking, and watched as `watched`.
    pub(super) fn new(
        segment: Segment,
        side: Side,
        barriers: Barriers,
        socket: OwnedFd,
        watched: (Arc<Watcher>, Token),
        ready_bit: ReadyBit,
    ) -> Arc<Self> {
        Arc::new(Self {
            segment,
            side,
            barriers,
            socket,
            gone: AtomicBool::new(false),
            process: std::process::id(),
            watched,
            ready_bit,
            wakeups: OnceLock::new(),
        })
    }

    /// Wakes a target through `wakeups` from now on.
    pub(super) fn wake_through(self: &Arc<Self>, wakeups: &Arc<Wakeups>) -> rustix::io::Result<()> {
        wakeups.add(self)?;
        let _ = self.wakeups.set(Arc::clone(wakeups));
        Ok(())
    }

    /// The link over this connection.
    pub(super) fn into_link(self: Arc<Self>, peer: Peer, hello: Hello) -> Link {
        let ring = |towards: Side| self.segment.layout().ring(towards);
        let key = Key(self.bit().unwrap_or_default().into());
        let (incoming, outgoing) = (self.side, self.side.other());
        Link {
            ends: Ends::Shm(Pair {
                tx: Producer::new(Mapped::new(Arc::clone(&self), outgoing), ring(outgoing)),
                rx: Consumer::new(Mapped::new(Arc::clone(&self), incoming), ring(incoming)),
            }),
            waiter: Arc::clone(&self) as Arc<dyn Waiter>,
            peer,
            hello,
            key,
        }
    }

    fn bit(&self) -> Option<u32> {
        match self.ready_bit {
            ReadyBit::None => None,
            ReadyBit::Source(_, bit) | ReadyBit::Target(_, bit, _) => Some(bit),
        }
    }

    /// A target's: its listener reports this connection as ready.
    pub(super) fn mark_ready(&self) {
        if let ReadyBit::Target(slots, bit, _) = &self.ready_bit {
            // The event that led here has woken the target already.
            let _ = slots.bitmap().set(*bit);
        }
    }

    pub(super) fn token(&self) -> Token {
        self.watched.1
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the peer is known to be gone. If so, all that it ever stored is visible.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Wakes the peer if it announced that it does not poll. Once per announcement.
    #[inline(always)]
    pub(super) fn wake_peer(&self) {
        self.barriers.after_publishing();
        let Apart(asleep) = &self.segment.control().asleep[self.side.other() as usize];
        if asleep.load(Ordering::Relaxed) != 0 {
            self.wake_sleeper(asleep);
        }
    }

    #[cold]
    fn wake_sleeper(&self, asleep: &AtomicU32) {
        match (asleep.swap(0, Ordering::AcqRel), &self.ready_bit) {
            (0, _) => {}
            (SET_BIT, ReadyBit::Source(bitmap, bit)) => {
                if bitmap.set(*bit) {
                    self.send_wakeup();
                }
            }
            _ => self.send_wakeup(),
        }
    }

    fn send_wakeup(&self) {
        match send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // The socket is full of wake-ups.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => self.set_gone(),
        }
    }

    /// Announces that this side sleeps, or that it does not.
    pub(super) fn announce(&self, sleeps: bool) {
        let Apart(asleep) = &self.segment.control().asleep[self.side as usize];
        // All changes of the flag are swaps: the two sides' are ordered, for loom as for the processor.
        asleep.swap(sleeps.into(), Ordering::AcqRel);
        if sleeps {
            self.barriers.after_announcing();
        }
    }

    /// A target's: announces that it no longer polls this connection. The barrier is the listener's.
    pub(super) fn announce_parked(&self) {
        let by_itself = matches!(self.ready_bit, ReadyBit::Target(_, _, true));
        let Apart(asleep) = &self.segment.control().asleep[self.side as usize];
        asleep.swap(if by_itself { SET_BIT } else { WAKE }, Ordering::AcqRel);
    }

    /// Ends the connection for both sides and wakes threads that sleep on the socket.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Detects that the peer is gone, and leaves wake-ups in the socket.
    fn check_peer(&self) {
        match recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((0, _)) | Err(_) => self.set_gone(),
        }
    }

    /// Takes wake-ups out of the socket. Detects that the peer is gone.
    pub(super) fn clear_wakeups(&self) {
        let mut buffer = [0; 64];
        for _ in 0..WAKEUPS_AT_ONCE {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.set_gone(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.set_gone(),
            }
        }
    }
}

/// A source sleeps on the connection's socket.
impl Waiter for Connection {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.socket()
    }

    fn clear_doorbell(&self) {
        self.clear_wakeups();
    }

    fn close(&self) {
        Self::close(self);
    }

    fn carried_by(&self) -> String {
        "shm".into()
    }

    fn is_peer_closed(&self) -> bool {
        Self::is_gone(self)
    }

    fn check_peer_closed(&self) -> bool {
        self.check_peer();
        Self::is_gone(self)
    }
}

impl Watched for Connection {
    /// The watcher waits only for the peer's end.
    fn ready(self: Arc<Self>, _: Token) {
        self.set_gone();
        self.mark_ready();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // The peer is notified even if a child of this process, forked without exec, holds the socket too.
        self.close();
        if let Some(wakeups) = self.wakeups.get() {
            wakeups.remove(self.watched.1, self.socket.as_fd());
        }
        self.watched.0.forget(self.watched.1, self.socket.as_fd());
        if let ReadyBit::Target(slots, bit, _) = &self.ready_bit {
            slots.free(*bit);
        }
    }
}
