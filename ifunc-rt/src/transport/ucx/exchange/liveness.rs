//! The socket of an exchange, as long as the connection lives. Where frames are put, it carries the [`notices`](super::notices).
//!
//! Its end says that the peer has left, and not that all has arrived which the peer sent before: that goes other ways, and may be slower. So
//! the connection ends when nothing has come for [`QUIET`], or by UCX, where that reports the end of the endpoint itself. A connection that puts
//! over TCP ends at once: UCX 1.13 ends a process that answers a put of a peer which has left.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::ucx::EndpointId;
use ::ucx::code::UCS_ERR_CONNECTION_RESET;
use rustix::event::PollFlags;
use rustix::net::{Shutdown, shutdown};

use super::notices::Channel;
use crate::os::{EventFlags, is_ending, is_hung_up};
use crate::transport::socket::{is_of_this_host, wait};
use crate::transport::ucx::engine::{Core, Engine, Locked, Visited};
use crate::transport::ucx::handshake::Mode;
use crate::transport::ucx::receive_queue::with_queue;
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};
use crate::transport::watch::{Token, Watch, Watched, Watcher};

/// How long nothing comes any more before a connection ends whose peer has left. What a network delays for longer is lost. In tests a
/// thread plays the peer, and other tests keep it off the processor.
pub(in crate::transport::ucx) const QUIET: Duration =
    Duration::from_millis(if cfg!(test) { 250 } else { 20 });
/// How long a connection lasts whose peer has left and from which there is always more: it may have left this socket alone.
const LONGEST: Duration = Duration::from_secs(5);
/// Most rounds of progress in one call.
const ROUNDS: usize = 64;
/// How long a process that has begun to end may take to close its sockets.
const ENDING: Duration = Duration::from_millis(20);
/// Time between two calls of the background thread to a connection whose peer has left, or whose notices no thread has read.
const RETRY: Duration = Duration::from_millis(2);

/// A connection's socket. Its end, on the other side, is the end of the connection there.
pub(in crate::transport::ucx) struct Liveness {
    watched: Arc<WatchedSocket>,
    /// Where notices follow the exchange.
    channel: Option<Channel>,
}

/// The socket, for the watching thread.
struct WatchedSocket {
    socket: Watch,
    engine: Weak<Engine>,
    id: ConnectionId,
    has_channel: bool,
    /// It had an event, and is watched again when what arrived was read.
    has_rung: AtomicBool,
}

impl Liveness {
    /// Of a source's socket.
    pub(in crate::transport::ucx) fn of_source(
        engine: &Arc<Engine>,
        id: ConnectionId,
        socket: OwnedFd,
        channel: Option<Channel>,
    ) -> std::io::Result<Self> {
        let watcher = Watcher::of_this_process()?;
        Self::new(Arc::downgrade(engine), id, Watch::new(&watcher, socket), channel)
    }

    pub(super) fn new(
        engine: Weak<Engine>,
        id: ConnectionId,
        socket: Watch,
        channel: Option<Channel>,
    ) -> std::io::Result<Self> {
        let watched = Arc::new(WatchedSocket {
            socket,
            engine,
            id,
            has_channel: channel.is_some(),
            has_rung: AtomicBool::new(false),
        });
        watched.watch(watched.has_channel)?;
        Ok(Self { watched, channel })
    }

    /// Whether the peer has closed the socket.
    pub(in crate::transport::ucx) fn is_hung_up(&self) -> bool {
        is_hung_up(self.watched.socket.as_fd())
    }

    /// Whether the peer has ended, or is about to, where it is on this host and its process has this number. A process that ends gives its
    /// memory back first and closes its sockets then, so those are waited for: the number may be that of another process, where the peer is in
    /// a container.
    pub(in crate::transport::ucx) fn has_ending_peer(&self, process: u32) -> bool {
        let socket = self.watched.socket.as_fd();
        let for_so_long = if is_of_this_host(socket) && is_ending(process) {
            ENDING
        } else {
            Duration::ZERO
        };
        wait(socket, PollFlags::RDHUP, Instant::now() + for_so_long)
    }

    /// The channel of notices, and its socket. `None` also in a forked child: the socket is the parent's.
    pub(super) fn channel(&mut self) -> Option<(&mut Channel, BorrowedFd<'_>)> {
        let Self { watched, channel } = self;
        let channel = channel.as_mut().filter(|_| !watched.socket.is_forked())?;
        Some((channel, watched.socket.as_fd()))
    }

    /// The socket of notices.
    pub(super) fn notice_socket(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(|_| self.watched.socket.as_fd())
    }

    /// Lets the watching thread wait for more, where it has found what was read now; for the peer's end alone, if that is all that counts.
    pub(super) fn watch_again(&self, for_notices: bool) {
        if self.watched.has_rung.swap(false, Ordering::AcqRel)
            && let Err(error) = self.watched.watch(for_notices)
        {
            tracing::warn!(%error, "a connection is not watched any more");
        }
    }

    /// Ends the socket: the peer says nothing more over it.
    pub(super) fn shut_down(&self) {
        let _ = shutdown(&self.watched.socket, Shutdown::Both);
    }
}

impl WatchedSocket {
    fn watch(self: &Arc<Self>, for_notices: bool) -> std::io::Result<()> {
        let watched = Arc::downgrade(self);
        let ends = EventFlags::RDHUP | EventFlags::ONESHOT;
        // Elsewhere nothing is sent any more: what a peer sends nevertheless is not read, and wakes no thread.
        let events = match for_notices {
            true => ends | EventFlags::IN,
            false => ends,
        };
        self.socket.watch(events, watched)
    }
}

impl Watched for WatchedSocket {
    fn ready(self: Arc<Self>, token: Token) {
        self.has_rung.store(true, Ordering::Release);
        self.due(token);
    }

    fn due(self: Arc<Self>, _: Token) {
        // The time of a half-open connection passes also where it is one no more.
        let is_hung_up = is_hung_up(self.socket.as_fd());
        if !is_hung_up && !self.has_channel {
            return;
        }
        let Some(engine) = Visited::of(&self.engine) else {
            return;
        };
        // The thread that uses the engine reads them: it has time for a ring.
        if self.has_channel {
            engine.set_notices_pending(self.id);
        }
        // A thread that connects or closes has the lock for long: other sockets do not wait for it.
        let Some(mut locked) = engine.try_lock() else {
            return self.socket.call_in(RETRY);
        };
        if self.has_channel && !is_hung_up {
            return locked.wake();
        }
        // What it said before it left.
        locked.receive_notices(self.id);
        if !locked.hang_up(self.id) {
            self.socket.call_in(RETRY);
        }
    }
}

/// A connection whose peer has left.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport::ucx) struct Leaving {
    /// When this side noticed.
    since: Instant,
    /// When something last came.
    quiet: Instant,
    /// Frames that had come by then.
    frames: u64,
}

impl Leaving {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            quiet: now,
            frames: 0,
        }
    }

    /// Whether nothing more comes, where so many frames have come. `goes_on`: something comes that is not counted, or that UCX fetches.
    fn is_over(&mut self, now: Instant, frames: u64, goes_on: bool) -> bool {
        if goes_on || frames != self.frames {
            self.quiet = now;
            self.frames = frames;
        }
        now - self.quiet >= QUIET || now - self.since >= LONGEST
    }
}

impl Locked<'_> {
    /// [Hangs up](Self::hang_up) if the peer has closed its socket, which the watching thread of a busy machine learns late.
    pub(in crate::transport::ucx) fn check_hung_up(&mut self, id: ConnectionId) {
        let connection = self.state.connections.get(&id);
        if connection.is_some_and(Connection::is_hung_up) {
            self.hang_up(id);
        }
    }

    /// The peer of a connection has closed its socket: it has left, or its process has ended. To be called again, unless the connection is
    /// over.
    pub(in crate::transport::ucx) fn hang_up(&mut self, id: ConnectionId) -> bool {
        if self.leave_if_hung_up(id) || self.state.connections.get(&id).is_none() {
            return true;
        }
        let some = (0..ROUNDS).take_while(|_| self.progress()).count() > 0;
        let Core { worker, state } = &mut **self;
        let Some(connection) = state.connections.get_mut(&id) else {
            return true;
        };
        if connection.gone.is_some() {
            return true;
        }
        let (frames, goes_on) = match &connection.stage {
            Stage::Open { .. } => {
                let come = with_queue(worker, id, |queue| queue.come());
                let (frames, is_fetching) = come.unwrap_or_default();
                // A long body is a frame only when UCX has all of it.
                (frames, is_fetching || some && connection.is_over_tcp)
            }
            // What is put is counted only when it is read.
            Stage::Put(_) => (0, some),
            _ => (0, false),
        };
        connection.signs.set_left();
        let now = Instant::now();
        let leaving = connection.leaving.get_or_insert_with(|| Leaving::new(now));
        if !leaving.is_over(now, frames, goes_on) {
            return false;
        }
        self.fail_left(id);
        self.drop_endpoint(id);
        self.dispatch();
        // A thread that sleeps on the worker learns it.
        self.wake();
        true
    }

    /// Whether a peer may have left.
    #[inline]
    pub(in crate::transport::ucx) fn may_have_left(&self) -> bool {
        let state = &self.state;
        self.engine().has_notices_pending() || state.resting > 0 || !state.parting.is_empty()
    }

    /// Closes the endpoint of a connection that puts over TCP, if its peer has closed the socket. Returns whether it is closed.
    pub(in crate::transport::ucx) fn leave_if_hung_up(&mut self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(&id);
        if self.state.mode != Mode::Puts || !connection.is_some_and(Connection::is_hung_up) {
            return false;
        }
        // The target may not have accepted it yet.
        self.learn_lanes(id);
        let is_over = self.puts_over_tcp(id);
        if is_over {
            let route = self
                .state
                .connections
                .get(&id)
                .and_then(|connection| connection.route);
            self.hang_up_at_once(id);
            self.leave_others_of(route);
        }
        is_over
    }

    /// The same of the other connections over a route, whose endpoint is open as long as one uses it.
    fn leave_others_of(&mut self, route: Option<EndpointId>) {
        let connections = self.state.connections.iter();
        let others = connections.filter(|(_, connection)| {
            route.is_some() && connection.route == route && connection.is_hung_up()
        });
        for id in Vec::from_iter(others.map(|(id, _)| id)) {
            self.hang_up_at_once(id);
        }
    }

    /// Whether what the peer puts are messages of UCX's that UCX answers.
    pub(in crate::transport::ucx) fn puts_over_tcp(&self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(&id);
        self.state.mode == Mode::Puts && connection.is_some_and(|connection| connection.is_over_tcp)
    }

    /// As [`hang_up`](Self::hang_up), of a connection that [puts over TCP](Self::puts_over_tcp): without another progress while its endpoint is
    /// open. UCX 1.13 ends a process whose answer to a put finds the connection closed, so what the peer has put last is not received.
    fn hang_up_at_once(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        connection.signs.set_left();
        connection
            .leaving
            .get_or_insert_with(|| Leaving::new(Instant::now()));
        if connection.gone.is_none() {
            self.fail_left(id);
        }
        self.drop_endpoint(id);
        self.wake();
    }

    /// A connection is over, because its peer has left.
    fn fail_left(&mut self, id: ConnectionId) {
        tracing::debug!("the peer of a connection closed its socket");
        let why = self.worker.library().status(UCS_ERR_CONNECTION_RESET);
        self.fail(id, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_when_nothing_comes_any_more_and_some_time_in_any_case() {
        let start = Instant::now();
        let mut leaving = Leaving::new(start);
        let mut is_over = |after: Duration, frames, goes_on| leaving.is_over(start + after, frames, goes_on);
        let step = QUIET / 2;
        assert!(!is_over(step, 0, true));
        assert!(!is_over(step * 2, 0, false));
        assert!(!is_over(step * 3 - Duration::from_nanos(1), 0, false));
        assert!(!is_over(step * 3, 5, false), "frames have come");
        assert!(!is_over(step * 4, 5, false));
        assert!(is_over(step * 5, 5, false));
        assert!(!is_over(LONGEST - step, 6, false));
        assert!(is_over(LONGEST, 7, true), "a peer that never stops");
    }
}
