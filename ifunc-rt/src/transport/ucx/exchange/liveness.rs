//! The socket of an exchange, as long as the connection lives.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::ucx::code::UCS_ERR_CONNECTION_RESET;

use crate::os::{EventFlags, is_hung_up};
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::table::ConnectionId;
use crate::transport::watch::{Token, Watch, Watched, Watcher};

/// Most rounds of progress before a connection ends.
const ROUNDS: usize = 64;
/// Time between two attempts of the background thread to use an engine.
const RETRY: Duration = Duration::from_millis(2);

/// A connection's socket. Its end, on the other side, is the end of the connection there.
pub(in crate::transport::ucx) struct Liveness(Arc<Connection>);

/// The connection of a socket.
struct Connection {
    socket: Watch,
    engine: Weak<Engine>,
    id: ConnectionId,
}

impl Liveness {
    /// Of a source's socket.
    pub(in crate::transport::ucx) fn of_source(
        engine: &Arc<Engine>,
        id: ConnectionId,
        socket: OwnedFd,
    ) -> std::io::Result<Self> {
        let watcher = Watcher::of_this_process()?;
        Self::new(Arc::downgrade(engine), id, Watch::new(&watcher, socket))
    }

    pub(super) fn new(engine: Weak<Engine>, id: ConnectionId, socket: Watch) -> std::io::Result<Self> {
        let connection = Arc::new(Connection { socket, engine, id });
        let watched = Arc::downgrade(&connection);
        // Nothing is sent any more: what a peer sends nevertheless is not read, and wakes no thread.
        let events = EventFlags::RDHUP | EventFlags::ONESHOT;
        connection.socket.watch(events, watched)?;
        Ok(Self(connection))
    }

    /// Whether the peer has closed the socket.
    pub(in crate::transport::ucx) fn is_hung_up(&self) -> bool {
        is_hung_up(self.0.socket.as_fd())
    }
}

impl Watched for Connection {
    fn ready(self: Arc<Self>, token: Token) {
        self.due(token);
    }

    fn due(self: Arc<Self>, _: Token) {
        // The time of a half-open connection passes also where it is one no more.
        let Some(engine) = self.engine.upgrade().filter(|_| is_hung_up(self.socket.as_fd())) else {
            return;
        };
        match engine.try_lock() {
            Some(mut locked) => locked.hang_up(self.id),
            // A thread that connects or closes: other sockets do not wait for it.
            None => self.socket.call_in(RETRY),
        }
    }
}

impl Locked<'_> {
    /// The peer of a connection has closed its socket: it has left, or its process has ended.
    pub(in crate::transport::ucx) fn hang_up(&mut self, id: ConnectionId) {
        // UCX may have what it sent before: credits bound how much.
        for _ in 0..ROUNDS {
            if !self.progress() {
                break;
            }
        }
        let why = self.worker.library().status(UCS_ERR_CONNECTION_RESET);
        tracing::debug!("the peer of a connection closed its socket");
        self.fail(id, why);
        self.drop_endpoint(id);
        self.dispatch();
        // A thread that sleeps on the worker learns it.
        self.wake();
    }
}
