//! One side of a connection: the segment, and the socket that wakes the peer and reports its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ifunc_abi::hello::Hello;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::barrier::Barriers;
use super::mapped::Mapped;
use super::ready::ReadyBitmap;
use super::ring::shared::SideState;
use super::ring::{Consumer, Producer, words};
use super::segment::{Apart, SET_BIT, Segment, Side, SideWords, WAKE};
use super::wakeups::ConnectionSlot;
use crate::os::{EventFlags, is_hung_up};
use crate::transport::watch::{Token, Watch, Watched};
use crate::transport::{Ends, Key, Link, Pair, Peer, Waiter};

/// Messages taken from the socket at a time. It bounds the time that a peer can cost by sending them.
const WAKEUPS_AT_ONCE: usize = 16;

/// One side of a connection. The parts of a [`Link`] share it; it closes when the last of them is dropped.
pub(super) struct Connection {
    /// The transport's name.
    scheme: &'static str,
    pub(super) segment: Segment,
    pub(super) side: Side,
    pub(super) barriers: Barriers,
    /// Closed by the kernel when the peer's process ends, however it ends. A byte on it is a wake-up. (An eventfd
    /// would be one file for both processes: the peer could take this side's wake-ups out of it, or make it block.)
    socket: Watch,
    gone: AtomicBool,
    role: Role,
}

/// What the two sides of a connection have for wake-ups.
pub(super) enum Role {
    /// A source that was given the target's ready bitmap has it, and its bit. Others send wake-ups over the socket.
    Source(Option<ReadyBit>),
    Target(ConnectionSlot),
}

/// A source's bit in the target's ready bitmap.
pub(super) struct ReadyBit {
    bitmap: ReadyBitmap,
    bit: u32,
    /// The bit was set, and the target was not woken over the socket since: another source may have cleared the bit.
    is_unsure: AtomicBool,
}

impl ReadyBit {
    pub(super) fn new(bitmap: ReadyBitmap, bit: u32) -> Self {
        Self {
            bitmap,
            bit,
            is_unsure: AtomicBool::new(false),
        }
    }

    /// Sets the bit. Returns whether the caller must wake the target.
    fn set(&self) -> bool {
        let wakes = self.bitmap.set(self.bit);
        self.is_unsure.store(!wakes, Ordering::Relaxed);
        wakes
    }
}

impl Connection {
    /// `socket` is connected and non-blocking. From now on the watcher waits for the peer's end.
    pub(super) fn new(
        scheme: &'static str,
        segment: Segment,
        barriers: Barriers,
        socket: Watch,
        role: Role,
    ) -> io::Result<Arc<Self>> {
        let side = match &role {
            Role::Source(_) => Side::Source,
            Role::Target(_) => Side::Target,
        };
        let connection = Arc::new(Self {
            scheme,
            segment,
            side,
            barriers,
            socket,
            gone: AtomicBool::new(false),
            role,
        });
        let watched: Weak<Self> = Arc::downgrade(&connection);
        connection
            .socket
            .watch(EventFlags::RDHUP | EventFlags::ET, watched)?;
        if let Role::Target(slot) = &connection.role {
            slot.wakeups.add(&connection.socket)?;
        }
        Ok(connection)
    }

    /// The link over this connection.
    pub(super) fn into_link(self: Arc<Self>, peer: Peer, hello: Hello) -> Link {
        let ring = |towards: Side| self.segment.layout().ring(towards);
        let key = match &self.role {
            Role::Source(_) => None,
            Role::Target(slot) => Some(Key::of(slot.bit.into())),
        };
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

    /// A target's: its listener reports this connection as ready.
    fn mark_ready(&self) {
        if let Role::Target(slot) = &self.role {
            slot.wakeups.slots.mark(slot.bit);
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the peer is known to be gone. If so, all that it ever stored is visible. A peer that takes its statement back
    /// stays gone.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        words::is_gone(&self.peer_words().closed, &self.gone)
    }

    /// The socket has ended. The shared word is set as well: the usual path of a sender reads nothing else.
    fn set_gone(&self) {
        words::set_gone(&self.gone);
        words::store_closed(&self.peer_words().closed);
    }

    fn words(&self, side: Side) -> &SideWords {
        let Apart(words) = &self.segment.control().sides[side as usize];
        words
    }

    /// What the peer states about itself.
    #[inline]
    pub(super) fn peer_words(&self) -> &SideWords {
        self.words(self.side.other())
    }

    /// Wakes the peer, which announced that it does not poll. Once per announcement.
    #[cold]
    pub(super) fn wake_sleeper(&self) {
        match (words::take_announcement(&self.peer_words().asleep), &self.role) {
            (0, _) => {}
            (SET_BIT, Role::Source(Some(ready))) => {
                if ready.set() {
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

    /// Announces how this side receives. For a parked connection the barrier is the listener's.
    pub(super) fn announce(&self, state: SideState) {
        let word = match (state, &self.role) {
            (SideState::Polls, _) => 0,
            (SideState::Parked, Role::Target(slot)) if slot.is_shown => SET_BIT,
            (SideState::Parked | SideState::Sleeps, _) => WAKE,
        };
        let sleeps = state == SideState::Sleeps;
        words::announce(self.barriers, &self.words(self.side).asleep, word, sleeps);
        if sleeps {
            // It waits for what the target answers: that must not depend on memory that other sources write.
            if let Role::Source(Some(ready)) = &self.role
                && ready.is_unsure.swap(false, Ordering::Relaxed)
            {
                self.send_wakeup();
            }
        }
    }

    /// Reads the socket. `false`: there is no wake-up. Detects that the peer is gone.
    fn receive_wakeup(&self, flags: RecvFlags) -> bool {
        match recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT | flags) {
            Ok((1.., _)) | Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => {}
            Ok((0, _)) | Err(_) => self.set_gone(),
        }
        false
    }
}

/// A source sleeps on the connection's socket.
impl Waiter for Connection {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn clear_doorbell(&self) {
        for _ in 0..WAKEUPS_AT_ONCE {
            if !self.receive_wakeup(RecvFlags::empty()) {
                break;
            }
        }
    }

    /// The peer sees the word before it sends its next frame. Its watcher notices the end of the socket some time later, on a
    /// busy machine only after another target listens at the same address.
    fn close(&self) {
        words::store_closed(&self.words(self.side).closed);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn carried_by(&self) -> String {
        self.scheme.into()
    }

    fn is_peer_closed(&self) -> bool {
        self.is_gone()
    }

    fn check_peer_closed(&self) -> bool {
        // Behind a wake-up that is not read yet, only the kernel sees the end.
        if self.receive_wakeup(RecvFlags::PEEK) && is_hung_up(self.socket.as_fd()) {
            self.set_gone();
        }
        self.is_gone()
    }
}

impl Watched for Connection {
    /// The watcher waits only for the peer's end.
    fn ready(self: Arc<Self>, _: Token) {
        self.set_gone();
        self.mark_ready();
    }

    fn woken(&self) {
        self.clear_doorbell();
        self.mark_ready();
        if let Role::Target(slot) = &self.role
            && self.is_gone()
        {
            // It would stay readable for ever.
            slot.wakeups.remove(&self.socket);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.socket.is_forked() {
            return;
        }
        // The peer is notified even if a child of this process, forked without exec, holds the socket too.
        self.close();
        if let Role::Target(slot) = &self.role {
            slot.wakeups.remove(&self.socket);
        }
    }
}
