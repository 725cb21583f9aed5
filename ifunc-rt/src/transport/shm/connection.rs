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
            shares_bodies: true,
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
        match send(&self.socket, &[1], SendFlags::NOSIGNAL) {
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
        match recv(&self.socket, &mut [0; 1], flags) {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::os::wait_readable;
    use crate::transport::RingSize;
    use crate::transport::shm::bound_name::socket_pair;
    use crate::transport::shm::segment::Layout;
    use crate::transport::shm::wakeups::Wakeups;
    use crate::transport::watch::Watcher;

    /// Both sides of a connection. No thread watches: what a side knows, it has found out itself.
    struct Sides {
        target: Arc<Connection>,
        source: Arc<Connection>,
        wakeups: Arc<Wakeups>,
    }

    impl Sides {
        /// `is_shown`: the source has the target's ready bitmap.
        fn new(is_shown: bool) -> Self {
            let watcher = Watcher::idle(std::process::id());
            let wakeups = Arc::new(Wakeups::new(Arc::clone(&watcher), 8).unwrap());
            let slot = wakeups.allocate(is_shown).unwrap();
            let bitmap = is_shown.then(|| {
                let bitmap = ReadyBitmap::adopt(wakeups.slots.memory.as_fd()).unwrap();
                ReadyBit::new(bitmap, slot.bit)
            });
            let size = RingSize {
                slots: 2,
                data: RingSize::MIN_DATA,
            };
            let layout = Layout::new([size, size]);
            let (theirs, memory) = Segment::create(layout).unwrap();
            let ours = Segment::adopt(memory.as_fd(), layout).unwrap();
            let sockets = socket_pair().unwrap();
            let side = |segment, socket, role| {
                let socket = Watch::new(&watcher, socket);
                Connection::new("here", segment, Barriers::Fences, socket, role).unwrap()
            };
            Self {
                target: side(theirs, sockets.0, Role::Target(slot)),
                source: side(ours, sockets.1, Role::Source(bitmap)),
                wakeups,
            }
        }

        /// The connections that the target finds ready.
        fn ready(&self) -> Vec<usize> {
            let mut ready = Vec::new();
            self.wakeups.slots.take_ready(|bit| ready.push(bit));
            ready
        }

        /// The source's socket ends as if its process had: its words say nothing.
        fn kill_source(&self) {
            shutdown(self.source.socket(), Shutdown::Both).unwrap();
        }
    }

    fn is_woken(side: &Connection) -> bool {
        wait_readable(side.socket(), Instant::now())
    }

    #[test]
    fn a_side_is_woken_once_per_announcement() {
        let Sides { target, source, .. } = &Sides::new(false);
        for (sleeper, other) in [(target, source), (source, target)] {
            for state in [SideState::Sleeps, SideState::Parked] {
                other.wake_sleeper();
                assert!(!is_woken(sleeper), "it polls");
                sleeper.announce(state);
                other.wake_sleeper();
                assert!(is_woken(sleeper));
                sleeper.clear_doorbell();
                other.wake_sleeper();
                assert!(!is_woken(sleeper), "it was woken");
                sleeper.announce(state);
                sleeper.announce(SideState::Polls);
                other.wake_sleeper();
                assert!(!is_woken(sleeper), "it polls again");
            }
        }
        assert_eq!(target.carried_by(), "here");
    }

    #[test]
    fn a_parked_target_that_polls_reads_a_bit_and_a_source_that_sleeps_does_not_rely_on_it() {
        let sides = Sides::new(true);
        let Sides {
            target,
            source,
            wakeups,
        } = &sides;
        target.announce(SideState::Parked);
        source.wake_sleeper();
        assert!(!is_woken(target));
        assert_eq!((sides.ready(), sides.ready()), (vec![0], vec![]));
        for state in [SideState::Polls, SideState::Parked] {
            source.announce(state);
            assert!(!is_woken(target), "it does not wait");
        }
        source.announce(SideState::Sleeps);
        assert!(is_woken(target), "it waits for what the target does");
        target.clear_doorbell();
        source.announce(SideState::Sleeps);
        assert!(!is_woken(target), "once for each bit");
        // A target that sleeps is woken with the bit, and not once more.
        wakeups.slots.announce(true);
        target.announce(SideState::Parked);
        source.wake_sleeper();
        assert!(is_woken(target));
        assert_eq!(sides.ready(), [0]);
        target.clear_doorbell();
        source.announce(SideState::Sleeps);
        assert!(!is_woken(target));
        // One that sleeps for this connection alone has no bit.
        target.announce(SideState::Sleeps);
        source.wake_sleeper();
        assert!(is_woken(target) && sides.ready().is_empty());
    }

    #[test]
    fn wakeups_are_taken_in_batches_and_mark_the_connection() {
        let sides = Sides::new(false);
        let wake = || {
            sides.target.announce(SideState::Sleeps);
            sides.source.wake_sleeper();
        };
        (0..=WAKEUPS_AT_ONCE).for_each(|_| wake());
        for is_left in [true, false] {
            sides.target.clear_doorbell();
            assert_eq!(is_woken(&sides.target), is_left);
        }
        assert_eq!(sides.ready(), []);
        wake();
        sides.wakeups.clear();
        assert_eq!((sides.ready(), is_woken(&sides.target)), (vec![0], false));
        assert!(!sides.target.is_gone());
        // The end marks it once, and not for ever.
        sides.kill_source();
        sides.wakeups.clear();
        assert_eq!((sides.ready(), sides.target.is_gone()), (vec![0], true));
        sides.wakeups.clear();
        assert_eq!(sides.ready(), []);
    }

    #[test]
    fn the_end_of_the_peer_is_found_by_each_way_to_look() {
        let ways: [fn(&Arc<Connection>); 4] = [
            |target| target.clear_doorbell(),
            |target| assert!(target.check_peer_closed()),
            |target| {
                let token = target.socket.token();
                Watched::ready(Arc::clone(target), token);
            },
            // To write to it fails as well.
            |target| target.send_wakeup(),
        ];
        for way in ways {
            let sides = Sides::new(false);
            assert!(!sides.target.check_peer_closed());
            sides.kill_source();
            assert!(!sides.target.is_peer_closed(), "nothing has looked");
            way(&sides.target);
            assert!(sides.target.is_peer_closed());
            assert_ne!(sides.target.peer_words().closed.load(Ordering::Relaxed), 0);
        }
        // Behind a wake-up, which stays.
        let sides = Sides::new(false);
        sides.source.send_wakeup();
        assert!(!sides.target.check_peer_closed() && is_woken(&sides.target));
        sides.kill_source();
        assert!(sides.target.check_peer_closed());
        assert_eq!(
            recv(&sides.target.socket, &mut [0; 2], RecvFlags::empty()),
            Ok((1, 1))
        );
        // A watcher that finds it marks the connection.
        assert_eq!(sides.ready(), []);
        Watched::ready(Arc::clone(&sides.target), sides.target.socket.token());
        assert_eq!(sides.ready(), [0]);
    }

    #[test]
    fn a_side_that_closes_or_is_dropped_says_so_in_its_word_and_by_its_socket() {
        let Sides { target, source, .. } = Sides::new(false);
        source.close();
        assert!(target.is_peer_closed() && is_woken(&target) && !source.is_peer_closed());
        let Sides { target, source, .. } = Sides::new(true);
        drop(source);
        assert!(target.is_peer_closed() && is_woken(&target));
    }
}
