//! One side of a connection: the socket, the stream over it, and the frames in the stream.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{Shutdown, shutdown};

use super::flow::{Flow, Packet};
use super::stream::{End, Stream};
use crate::os::{Epoll, EventFd, EventFlags, is_hung_up};
use crate::transport::socket::{undelivered, wait};
use crate::transport::watch::{Token, Watch, Watched};
use crate::transport::{LinkError, Waiter};

/// How long a source that closes a connection waits until the target's kernel has everything.
const LINGER: Duration = Duration::from_secs(1);
/// How long a target waits.
const TARGET_LINGER: Duration = Duration::from_millis(20);

/// Time between two checks whether the peer's kernel has everything.
const CHECK: Duration = Duration::from_millis(1);

/// The longest sleep of a source, and of a target that made a link.
const SLICE: Duration = Duration::from_millis(5);

/// What events of the doorbell's own eventfd are named by; no connection has this number.
const BELL: u64 = 0;

/// What wakes the threads that sleep on connections: one for each connection of a source, one for all of a target's listener.
pub(super) struct Doorbell {
    epoll: Epoll,
    bell: EventFd,
    /// Connections of a target that exist.
    pub(super) connections: AtomicUsize,
    /// A thread of the target may sleep.
    is_armed: AtomicBool,
    /// Parked connections of a target with an event that its socket no longer shows.
    ready: Mutex<Vec<u64>>,
}

impl Doorbell {
    pub(super) fn new() -> std::io::Result<Self> {
        let (epoll, bell) = (Epoll::new()?, EventFd::new()?);
        epoll.add(&bell, BELL, EventFlags::IN)?;
        Ok(Self {
            epoll,
            bell,
            connections: AtomicUsize::new(0),
            is_armed: AtomicBool::new(false),
            ready: Mutex::default(),
        })
    }

    pub(super) fn wake(&self) {
        self.bell.wake();
    }

    /// Clears wake-ups, and announces that a thread is about to sleep.
    pub(super) fn arm(&self) {
        self.bell.clear();
        self.is_armed.store(true, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Calls `each` with the numbers of connections that have an event, and maybe of others.
    pub(super) fn ready(&self, mut each: impl FnMut(u64)) {
        let mut found = false;
        let mut one = |number| {
            found = true;
            each(number);
        };
        std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .for_each(&mut one);
        // It fails only for reasons that no instance of this process has.
        let _ = self.epoll.wait(Some(Duration::ZERO), |number| {
            if number != BELL {
                one(number);
            }
        });
        // This thread may use up the event before the one that sleeps sees it.
        if found && self.is_armed.load(Ordering::SeqCst) {
            self.bell.wake();
        }
    }

    /// A parked connection has an event that its socket does not show any more.
    fn ring(&self, number: u64, is_target: bool) {
        if is_target {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.push(number);
        }
        self.bell.wake();
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// One side of a connection. The parts of a link share it; it closes when the last of them is dropped.
pub(super) struct Connection {
    socket: Watch,
    doorbell: Arc<Doorbell>,
    number: u64,
    is_target: bool,
    suite: String,
    /// The peer is known to be gone.
    gone: AtomicBool,
    /// This side receives no more unless its doorbell rings.
    is_parked: AtomicBool,
    state: Mutex<State>,
}

/// What threads share under a lock.
pub(super) struct State {
    stream: Stream,
    pub(super) flow: Flow,
    /// Why the connection is over.
    pub(super) gone: Option<LinkError>,
    /// The doorbell rings when the socket takes more.
    awaits_writing: bool,
}

impl Connection {
    /// A connection over an established stream. From now on the watcher waits for the peer's end.
    pub(super) fn new(
        socket: Watch,
        stream: Stream,
        flow: Flow,
        doorbell: Arc<Doorbell>,
        number: u64,
        is_target: bool,
    ) -> std::io::Result<Arc<Self>> {
        if is_target {
            doorbell.connections.fetch_add(1, Ordering::Relaxed);
        }
        let connection = Arc::new(Self {
            socket,
            doorbell,
            number,
            is_target,
            suite: stream.suite(),
            gone: AtomicBool::new(false),
            is_parked: AtomicBool::new(false),
            state: Mutex::new(State {
                stream,
                flow,
                gone: None,
                awaits_writing: false,
            }),
        });
        let watched = Arc::downgrade(&connection);
        connection
            .socket
            .watch(EventFlags::RDHUP | EventFlags::ET, watched)?;
        connection
            .doorbell
            .epoll
            .add(&connection.socket, number, RECEIVING)?;
        Ok(connection)
    }

    /// The state. A panic of another thread leaves it whole between two statements of this module.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that this side receives no more before its doorbell rings.
    pub(super) fn set_parked(&self, parked: bool) {
        self.is_parked.store(parked, Ordering::SeqCst);
    }

    /// Writes what waits, and receives what has arrived.
    pub(super) fn pump(&self, state: &mut State) {
        if state.gone.is_some() {
            return;
        }
        let before = state.flow.progress();
        let socket = self.socket.as_fd();
        let State { stream, flow, .. } = state;
        match stream.receive(socket, |bytes| flow.take(bytes)) {
            Ok(()) => self.settle(state),
            Err(end) => self.end(state, end),
        }
        if (state.gone.is_some() || state.flow.progress() != before)
            && self.is_parked.swap(false, Ordering::SeqCst)
        {
            self.doorbell.ring(self.number, self.is_target);
        }
    }

    /// Writes what waits, and credits that are due.
    pub(super) fn settle(&self, state: &mut State) {
        if state.gone.is_some() {
            return;
        }
        let socket = self.socket.as_fd();
        // If the socket has ended, what the peer sent before is still to be received: then that finds the end.
        let mut written = state.stream.flush(socket);
        // Later credits include earlier ones, so none wait in memory.
        if written.is_ok()
            && !state.stream.has_backlog()
            && let Some(head) = state.flow.due()
        {
            state.stream.encrypt(&head.encode(), &[]);
            written = state.stream.flush(socket);
        }
        self.watch_writing(state, written.is_ok());
    }

    /// Whether the next frame may be written: the socket has taken the one before.
    pub(super) fn may_write(state: &State, len: usize) -> bool {
        state.flow.has_credit(len) && !state.stream.has_backlog()
    }

    /// Encrypts a frame, and writes what the socket takes of it. Returns its sequence number.
    pub(super) fn send(&self, state: &mut State, words: [u64; 2], body: &Packet) -> u32 {
        let head = state.flow.send(words, body.bytes().len());
        state.stream.encrypt(&head.encode(), body.bytes());
        self.settle(state);
        head.sequence
    }

    /// The connection is over.
    fn end(&self, state: &mut State, end: End) {
        let why = match end {
            End::Closed | End::Cut => LinkError::Closed,
            End::Malformed(problem) => LinkError::Malformed(problem),
            End::Tls(error) => {
                tracing::debug!(%error, "TLS ends a connection");
                LinkError::Malformed("what arrived is not authentic, or not of TLS")
            }
        };
        if matches!(why, LinkError::Malformed(_)) {
            // What such a peer sent before is not delivered. It may learn why.
            state.flow.discard();
            let _ = state.stream.flush(self.socket.as_fd());
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        state.gone = Some(why);
        self.gone.store(true, Ordering::Release);
    }

    /// Lets the doorbell ring when the socket takes more, while something waits to be written.
    fn watch_writing(&self, state: &mut State, can_write: bool) {
        let awaits = can_write && state.stream.has_backlog();
        if awaits != state.awaits_writing {
            state.awaits_writing = awaits;
            let more = if awaits {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            // The socket is there until this is dropped.
            let _ = self
                .doorbell
                .epoll
                .modify(&self.socket, self.number, RECEIVING | more);
        }
    }

    /// Writes everything and closes the stream, within a bounded time.
    fn finish(&self, state: &mut State) {
        let socket = self.socket.as_fd();
        let linger = if self.is_target { TARGET_LINGER } else { LINGER };
        let deadline = Instant::now() + linger;
        state.stream.close();
        // What arrives meanwhile is read: a socket that is closed with unread bytes loses what it has not sent.
        while state.stream.flush(socket).is_ok()
            && state.stream.discard(socket).is_ok()
            && (state.stream.has_backlog() || undelivered(socket) > 0)
            && Instant::now() < deadline
        {
            // The kernel reports by no event that the peer's has everything.
            wait(socket, PollFlags::IN, deadline.min(Instant::now() + CHECK));
        }
        let _ = shutdown(socket, Shutdown::Both);
    }
}

/// The events that a connection is received by.
const RECEIVING: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

impl Waiter for Connection {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// Bounds a wait for credit that another thread's poll has received.
    fn poll_interval(&self) -> Option<Duration> {
        Some(SLICE)
    }

    fn clear_doorbell(&self) {
        // A poll takes what is in the socket.
        self.doorbell.bell.clear();
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.gone.is_none() {
            self.finish(&mut state);
            state.gone = Some(LinkError::Closed);
            self.gone.store(true, Ordering::Release);
        }
        drop(state);
        self.doorbell.wake();
    }

    fn carried_by(&self) -> String {
        format!("tls {}", self.suite)
    }

    fn is_peer_closed(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn check_peer_closed(&self) -> bool {
        if is_hung_up(self.socket.as_fd()) {
            self.gone.store(true, Ordering::Release);
        }
        self.is_peer_closed()
    }
}

impl Watched for Connection {
    /// The watcher waits only for the peer's end. What arrived before is still received.
    fn ready(self: Arc<Self>, _: Token) {
        self.gone.store(true, Ordering::Release);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A child that was forked without exec shares the socket, and finds locks as they were at the fork.
        if self.socket.is_forked() {
            return;
        }
        self.close();
        // Closing the socket is not enough if a forked child holds it too.
        self.doorbell.epoll.remove(&self.socket);
        if self.is_target {
            self.doorbell.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::wait_readable;

    #[test]
    fn a_thread_that_finds_events_wakes_the_one_that_may_sleep() {
        let doorbell = Doorbell::new().unwrap();
        let is_ringing = || wait_readable(doorbell.as_fd(), Instant::now());
        let found = || {
            let mut found = Vec::new();
            doorbell.ready(|number| found.push(number));
            found
        };
        for (is_target, named) in [(true, vec![7]), (false, vec![])] {
            doorbell.ring(7, is_target);
            assert!(is_ringing());
            doorbell.arm();
            assert!(!is_ringing());
            assert_eq!(found(), named);
            assert_eq!(is_ringing(), is_target, "the event is used up");
            // Nobody sleeps: nobody is woken.
            doorbell.ring(7, is_target);
            doorbell.disarm();
            doorbell.bell.clear();
            assert_eq!(found(), named);
            assert!(!is_ringing());
        }
    }
}
