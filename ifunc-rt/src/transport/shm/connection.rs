//! One side of a connection: the segment, the socket that rings and tells when the peer is gone, and what the
//! kernel said about the peer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use ifunc_abi::hello::Hello;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::barrier::Barriers;
use super::bells::Bells;
use super::board::{Board, Roll};
use super::layout::{Apart, MARK, RING, Side};
use super::mapped::Mapped;
use super::ring::consumer::Consumer;
use super::ring::producer::Producer;
use super::segment::Segment;
use super::waiter::SocketWaiter;
use super::watch::{Token, Watched, Watcher};
use crate::transport::{Key, Link, Peer};

/// Messages taken from the socket at a time: a peer that sends more of them keeps nobody busy.
const DRAINED_AT_ONCE: usize = 16;

/// One side of a connection. The parts of a [`Link`] share it; it closes when the last of them is dropped.
pub(super) struct Connection {
    pub(super) segment: Segment,
    pub(super) side: Side,
    pub(super) barriers: Barriers,
    /// Closed by the kernel when the peer's process ends, however it ends. A byte on it rings. (An eventfd
    /// would be one file for both processes: the peer could take our rings out of it, or make it block.)
    socket: OwnedFd,
    gone: AtomicBool,
    watched: (Arc<Watcher>, Token),
    /// The process that made it: a child that was forked has its own copies of descriptors, but not of what they mean.
    process: u32,
    place: Place,
    /// A target's: where its listener sleeps.
    bells: OnceLock<Arc<Bells>>,
}

/// Where a connection is on its target's board.
pub(super) enum Place {
    /// A source that was not given the board: it rings.
    None,
    /// A source's: the board, and its bit.
    Source(Board, u32),
    /// A target's: the bit, and whether the source sets it by itself.
    Target(Arc<Roll>, u32, bool),
}

impl Connection {
    /// `socket` is connected, non-blocking, and watched as `watched`.
    pub(super) fn new(
        segment: Segment,
        side: Side,
        barriers: Barriers,
        socket: OwnedFd,
        watched: (Arc<Watcher>, Token),
        place: Place,
    ) -> Arc<Self> {
        Arc::new(Self {
            segment,
            side,
            barriers,
            socket,
            gone: AtomicBool::new(false),
            process: std::process::id(),
            watched,
            place,
            bells: OnceLock::new(),
        })
    }

    /// Rings a target's `bells` from now on.
    pub(super) fn hang(self: &Arc<Self>, bells: &Arc<Bells>) -> rustix::io::Result<()> {
        bells.add(self)?;
        let _ = self.bells.set(Arc::clone(bells));
        Ok(())
    }

    /// The two rings, a way to sleep, and what is known of the peer.
    pub(super) fn into_link(self: Arc<Self>, peer: Peer, hello: Hello) -> Link {
        let ring = |towards: Side| self.segment.layout().ring(towards);
        let key = Key(self.bit().unwrap_or_default().into());
        let (incoming, outgoing) = (self.side, self.side.other());
        Link {
            tx: Producer::new(Mapped::new(Arc::clone(&self), outgoing), ring(outgoing)).into(),
            rx: Consumer::new(Mapped::new(Arc::clone(&self), incoming), ring(incoming)).into(),
            waiter: Arc::new(SocketWaiter::new(Arc::clone(&self))),
            peer,
            hello,
            key,
        }
    }

    fn bit(&self) -> Option<u32> {
        match self.place {
            Place::None => None,
            Place::Source(_, bit) | Place::Target(_, bit, _) => Some(bit),
        }
    }

    /// A target's: makes its listener look at this connection.
    pub(super) fn stir(&self) {
        if let Place::Target(roll, bit, _) = &self.place {
            // Who sleeps is rung by what made this happen.
            let _ = roll.board().mark(*bit);
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

    /// Tells the peer if it announced that it does not look. Once per announcement.
    #[inline(always)]
    pub(super) fn wake_peer(&self) {
        self.barriers.after_publishing();
        let Apart(asleep) = &self.segment.control().asleep[self.side.other() as usize];
        if asleep.load(Ordering::Relaxed) != 0 {
            self.tell(asleep);
        }
    }

    #[cold]
    fn tell(&self, asleep: &AtomicU32) {
        match (asleep.swap(0, Ordering::AcqRel), &self.place) {
            (0, _) => {}
            (MARK, Place::Source(board, bit)) => {
                if board.mark(*bit) {
                    self.ring();
                }
            }
            _ => self.ring(),
        }
    }

    fn ring(&self) {
        match send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // Full of rings: it is being rung.
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

    /// A target's: announces that it looks at this connection no more. The barrier is the listener's.
    pub(super) fn announce_rest(&self) {
        let by_itself = matches!(self.place, Place::Target(_, _, true));
        let Apart(asleep) = &self.segment.control().asleep[self.side as usize];
        asleep.swap(if by_itself { MARK } else { RING }, Ordering::AcqRel);
    }

    /// Ends it for both sides; who sleeps on the socket wakes up.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Notices that the peer is gone, and leaves rings in the socket.
    pub(super) fn look(&self) {
        match recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((0, _)) | Err(_) => self.set_gone(),
        }
    }

    /// Takes rings out of the socket; notices that the peer is gone.
    pub(super) fn drain(&self) {
        let mut buffer = [0; 64];
        for _ in 0..DRAINED_AT_ONCE {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.set_gone(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.set_gone(),
            }
        }
    }
}

impl Watched for Connection {
    /// The watcher waits for nothing but the peer's end.
    fn ready(self: Arc<Self>, _: Token) {
        self.set_gone();
        self.stir();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // The peer learns it even if a child of this process, forked without exec, holds the socket too.
        self.close();
        if let Some(bells) = self.bells.get() {
            bells.remove(self.watched.1, self.socket.as_fd());
        }
        self.watched.0.forget(self.watched.1, self.socket.as_fd());
        if let Place::Target(roll, bit, _) = &self.place {
            roll.leave(*bit);
        }
    }
}
