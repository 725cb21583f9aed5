//! What an engine knows of its connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::ucx::{Endpoint, EndpointId, OperationId, Status};
use ifunc_abi::hello::Hello;

use super::connections::ConnectionTable;
use super::credits::UnderWay;
use super::events::Data;
use super::exchange::liveness::{Leaving, Liveness};
use super::gather::{Gather, Pack, Unread};
use super::handshake::{LONGEST, Mode, Nonce, Welcome};
use super::header::{Head, Name, Notice};
use super::put::rings::Rings;
use super::receive_queue::ReceiveQueue;
use super::routes::Route;
use super::tcp_watch::Watch;
use crate::policy::SharedConnect;
use crate::transport::handshake::Declined;
use crate::transport::window::SendWindow;
use crate::transport::{Key, LinkError, Peer};

/// A connection of an engine. Unlike the address of an endpoint it is not used again soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConnectionId(pub(super) u64);

/// A close that may have to wait until its thread may use the worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closing {
    /// A connection is not used any more.
    Connection(ConnectionId),
    /// A target does not listen any more.
    Acceptor,
}

impl From<ConnectionId> for Closing {
    fn from(id: ConnectionId) -> Self {
        Self::Connection(id)
    }
}

/// Everything under the lock of an engine.
#[derive(Default)]
pub(super) struct State {
    /// How frames go.
    pub(super) mode: Mode,
    pub(super) connections: ConnectionTable,
    /// Those that have an endpoint to themselves.
    pub(super) endpoints: BTreeMap<EndpointId, ConnectionId>,
    /// Endpoints of all connections to one worker each.
    pub(super) routes: BTreeMap<EndpointId, Route>,
    /// How many of them rest.
    pub(super) resting: usize,
    /// Operations under way that close endpoints. Deferred deregistration: each keeps the memory that the peer reaches over its
    /// endpoint, so that a late put does not land in memory that has another use.
    pub(super) closing: BTreeMap<OperationId, Vec<Rings>>,
    /// Of a target.
    pub(super) acceptor: Option<Acceptor>,
    /// Number of connections that have a deadline.
    pub(super) timed: usize,
    /// Connections whose peers broke the protocol, and whose endpoints are to be closed.
    pub(super) broken: Vec<ConnectionId>,
    /// Connections that put, and whose sleep is not announced.
    pub(super) awake: BTreeSet<ConnectionId>,
    /// Connections whose peers posted what has not landed, and will land without a doorbell; and those whose peers have closed
    /// them, until all of their frames have landed.
    pub(super) expecting: BTreeSet<ConnectionId>,
    /// Since when a frame is expected that lands without a doorbell.
    pub(super) expecting_since: Option<Instant>,
    /// Connections of a target that were parked until something happened to them.
    pub(super) ready: Vec<Key>,
    /// Endpoints that failed, which are dropped after the other events.
    pub(super) failed: Vec<(EndpointId, Status)>,
    /// The worker is the application's again, and not used any more.
    pub(super) closed: bool,
    /// Endpoints of the application's of which it said that their peers are gone.
    pub(super) lost: BTreeSet<EndpointId>,
    /// Ends connections of TCP whose peers are silent; `None` where the environment decides.
    pub(super) watch: Option<Watch>,
    /// What polls of a target gather, and calls of a source.
    pub(super) gather: Gather,
    /// Frames of all connections that were not taken yet.
    pub(super) unread: Unread,
    /// Buffers of UCX's from which polls are reading bodies. [`Engine::detach`](super::engine::Engine::detach) refuses meanwhile.
    pub(super) being_read: usize,
    /// The thread that took the last of them.
    pub(super) reader: usize,
    /// A connection has puts over TCP, which land in progress.
    pub(super) has_put_over_tcp: bool,
    /// Routes whose endpoints were flushed, which are closed after the other events.
    pub(super) flushed: Vec<EndpointId>,
    /// Connections that put over TCP and that their peers have closed, whose endpoints are open.
    pub(super) parting: Vec<ConnectionId>,
    /// It was logged that the worker cannot be armed.
    pub(super) unarmed: bool,
    /// How often an application's worker was slept on since the last event.
    pub(super) sleeps: u32,
    /// How often in succession the worker could not be armed because of messages that peers do not take.
    pub(super) stuck: u32,
    /// How many rounds of progress in succession, in which nothing happens, are due before the worker is armed: an endpoint was closed.
    pub(super) quiet_rounds_due: u32,
    /// Makes random nonces: its keys are from the system's random numbers.
    nonces: RandomState,
}

/// Where sources connect to a target.
pub(super) struct Acceptor {
    /// A source says hello after an [`exchange`](super::exchange); otherwise every process may that has the worker's address.
    pub(super) by_exchange: bool,
    /// The terms for all sources.
    pub(super) welcome: Welcome,
    /// Most connections at a time.
    pub(super) most: usize,
    /// Which peers connect.
    pub(super) connect: SharedConnect,
    /// Connections that the target has not taken yet.
    pub(super) waiting: VecDeque<ConnectionId>,
    /// The worker is armed: progress before the sleep would take away what wakes the target.
    pub(super) armed: bool,
    /// A thread may sleep on the descriptor. Events that another thread's progress finds meanwhile do not make it readable.
    pub(super) asleep: bool,
    /// It was woken since. Another thread that arms the worker takes that back, and wakes it again.
    pub(super) is_woken: bool,
}

/// How far a connection is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// A source has said what it is.
    Calling,
    /// The target did not take it, or said something else.
    Declined(Declined),
    /// A target waits for a hello.
    #[default]
    HalfOpen,
    /// Frames may come and go, by puts; at a target as soon as the source has offered its ring.
    Put(Box<Rings>),
    /// A target has refused the connection.
    TurnedAway,
    /// Frames may come and go.
    Open { out: SendWindow },
}

/// A connection.
#[derive(Default)]
pub(super) struct Connection {
    /// `None` when it was closed. One that is owned is for this connection alone; others are a route's, or the application's.
    pub(super) endpoint: Option<Endpoint>,
    /// The route that it used first and last.
    pub(super) route: Option<EndpointId>,
    /// The socket of the exchange.
    pub(super) socket: Option<Liveness>,
    /// The peer has closed the socket.
    pub(super) leaving: Option<Leaving>,
    /// Of a source that has not said hello.
    pub(super) nonce: Nonce,
    /// Who the peer is, where it has proved a key.
    pub(super) known: Option<Peer>,
    /// What the peer calls the connection in what it sends here.
    pub(super) name: Name,
    /// What it is called in what is sent to the peer; none: it has not said.
    pub(super) peer: Name,
    /// What the peer stated about itself.
    pub(super) hello: Option<Hello>,
    /// The id of the active messages that the peer listens to; `None`: the engine's.
    pub(super) am_id: Option<u16>,
    /// TCP alone carries it. There, a body that the peer fetches comes later than one that is sent at once.
    pub(super) is_over_tcp: bool,
    /// The operation that closes it.
    pub(super) closing: Option<OperationId>,
    pub(super) stage: Stage,
    /// Messages that are being sent.
    pub(super) under_way: UnderWay,
    /// The packed ones among them, which UCX sends in turn.
    pub(super) packed_under_way: usize,
    /// Credits are to be sent when fewer messages are under way.
    pub(super) owes_credits: bool,
    /// The message that is open for more frames.
    pub(super) pack: Option<Pack>,
    pub(super) gone: Option<LinkError>,
    /// The status by which the endpoint failed.
    pub(super) failure: Option<Status>,
    /// The peer's `FIN`: how many frames it had sent.
    pub(super) fin: Option<u32>,
    /// The peer has acknowledged this side's `FIN`.
    pub(super) fin_acked: bool,
    /// This side has sent its `FIN`.
    pub(super) closed: bool,
    /// When the connection is forgotten: half open, it waits for the handshake; closed, for `FIN_ACK`.
    pub(super) deadline: Option<Instant>,
    /// For threads that do not have the lock.
    pub(super) signs: Arc<Signs>,
}

/// The state of a connection that is used without the lock. `arrived` is written by what has the handler, `gone` and `credits` under the lock;
/// the others by the thread that polls the connection, and by a thread that finds out, under the lock, that it is ready.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// `gone.is_some()`, or its worker is not used any more.
    pub(super) gone: AtomicBool,
    /// `gone`, or the peer has left: what it sent before may still come, and no frame is sent to it.
    pub(super) left: AtomicBool,
    /// There is something in the [queue](super::receive_queue).
    pub(super) arrived: AtomicBool,
    /// There are so many credits that the peer does not know that the next frame brings them.
    pub(super) credits: AtomicBool,
    /// A frame was sent since the last poll that could have progressed UCX, and UCX has nothing under way after it.
    pub(super) sent: AtomicBool,
    /// A target polls here only when the connection is ready. After it has set this, the target takes the lock once: what another thread
    /// received before is in `arrived` then, and what is received afterwards is reported as ready.
    pub(super) parked: AtomicBool,
    /// A thread sleeps that receives here, or is about to.
    pub(super) armed: AtomicBool,
}

impl Signs {
    /// Whether there is nothing to poll for.
    pub(super) fn is_idle(&self) -> bool {
        !self.arrived.load(Ordering::Acquire) && !self.is_gone()
    }

    /// Whether nothing follows from a frame that arrives but that it is there.
    #[inline]
    pub(super) fn needs_no_dispatch(&self) -> bool {
        !self.gone.load(Ordering::Relaxed) && !self.parked.load(Ordering::Relaxed)
    }

    /// Whether a target had parked the connection, which is ready from now on. Under the lock.
    #[inline]
    pub(super) fn take_parked(&self) -> bool {
        let is_parked = self.parked.load(Ordering::Relaxed);
        if is_parked {
            self.parked.store(false, Ordering::Relaxed);
        }
        is_parked
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    pub(super) fn set_left(&self) {
        self.left.store(true, Ordering::Release);
    }

    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.set_left();
    }
}

impl State {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Adds a connection over an endpoint.
    pub(super) fn insert(&mut self, endpoint: Endpoint, stage: Stage) -> ConnectionId {
        let id = self.connections.next_id();
        if endpoint.is_owned() {
            self.endpoints.insert(endpoint.id(), id);
        }
        let route = Some(endpoint.id()).filter(|&id| self.use_route(id));
        // 0 is no name.
        let nonce = (self.random(id, "name") as u32).max(1);
        let name = Name::new(id.index() as u32, nonce);
        let connection = Connection {
            endpoint: Some(endpoint),
            route,
            name,
            stage,
            ..Connection::default()
        };
        self.connections.insert(id, connection);
        id
    }

    /// A number that no peer can guess.
    pub(super) fn random(&self, id: ConnectionId, purpose: &str) -> u64 {
        self.nonces.hash_one((id.0, Instant::now(), purpose))
    }
}

impl ConnectionId {
    /// Where it is in the [table](ConnectionTable).
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as u32 as usize
    }

    /// By which a target names it.
    pub(super) fn key(self) -> Key {
        Key::of(self.0)
    }
}

impl State {
    /// Whether no endpoint is to be dropped after the other events.
    pub(super) fn has_no_endpoint_to_drop(&self) -> bool {
        self.failed.is_empty() && self.broken.is_empty() && self.flushed.is_empty()
    }

    /// Whether dispatching has something to do that is not an event.
    #[inline]
    pub(super) fn has_housekeeping(&self) -> bool {
        !self.broken.is_empty()
            || !self.expecting.is_empty()
            || self.expecting_since.is_some()
            || self.timed > 0
            || self.resting > 0
            || self.acceptor.as_ref().is_some_and(|acceptor| acceptor.asleep)
    }

    /// Sets how long a connection may stay as it is.
    pub(super) fn set_deadline(&mut self, id: ConnectionId, timeout: Option<Duration>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let deadline = timeout.map(|timeout| Instant::now() + timeout);
            self.timed += usize::from(deadline.is_some());
            self.timed -= usize::from(connection.deadline.is_some());
            connection.deadline = deadline;
        }
    }

    /// The connections whose handshake is not over.
    pub(super) fn half_open(&self) -> impl Iterator<Item = ConnectionId> {
        let connections = self.connections.iter();
        connections
            .filter(|(_, connection)| connection.deadline.is_some() && !connection.closed)
            .map(|(id, _)| id)
    }

    pub(super) fn set_stage(&mut self, id: ConnectionId, stage: Stage) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stage = stage;
        }
    }

    /// The rings of a connection whose frames are put, unless it is over.
    pub(super) fn rings(&mut self, id: ConnectionId) -> Option<&mut Rings> {
        let connection = self.connections.get_mut(&id)?;
        let is_open = connection.gone.is_none();
        connection
            .rings()
            .filter(|rings| is_open && rings.remote.is_some())
    }

    /// The connection of a message: by the name in it, which only the peer knows; without a name, the connection that has the
    /// endpoint to itself.
    pub(super) fn addressee(
        &mut self,
        from: Option<EndpointId>,
        to: Name,
    ) -> Option<(ConnectionId, &mut Connection)> {
        if to == Name::NONE {
            let id = *self.endpoints.get(&from?)?;
            return Some((id, self.connections.get_mut(&id)?));
        }
        let named = self.connections.at_mut(to.number());
        named.filter(|(_, connection)| connection.name == to)
    }

    /// An event of a connection: it is ready, if the target has parked it.
    pub(super) fn notify(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.signs.take_parked()
        {
            self.ready.push(id.key());
        }
    }
}

impl Connection {
    /// The rings, if frames are put.
    pub(super) fn rings(&mut self) -> Option<&mut Rings> {
        match &mut self.stage {
            Stage::Put(rings) => Some(rings),
            _ => None,
        }
    }

    /// Whether the peer has closed the socket.
    pub(super) fn is_hung_up(&self) -> bool {
        self.socket.as_ref().is_some_and(Liveness::is_hung_up)
    }

    /// Whether both sides know that the connection is over, and why: one has closed it.
    pub(super) fn said_goodbye(&self) -> bool {
        let has_failed = self.failure.is_some() || self.leaving.is_some();
        (self.fin_acked || self.fin.is_some())
            && !has_failed
            && !matches!(self.gone, Some(LinkError::Malformed(_)))
    }

    /// The first reason why it is over stays.
    pub(super) fn end(&mut self, why: LinkError) {
        self.gone.get_or_insert(why);
        self.signs.set_gone();
    }

    /// Whether the next short frame goes with others.
    #[inline]
    pub(super) fn joins(&self) -> bool {
        self.pack.is_some() || self.is_busy()
    }

    /// Whether UCX has a packed message that it has not sent. The next one would wait for it.
    pub(super) fn is_busy(&self) -> bool {
        self.packed_under_way > 0
    }

    /// Validates a message. The notice; `None`: it is a frame, which the queue has admitted.
    pub(super) fn validate(
        &mut self,
        queue: Option<&mut ReceiveQueue>,
        head: &Head,
        data: &Data,
    ) -> Result<Option<Notice>, &'static str> {
        let len = data.len();
        if head.len as usize != len {
            return Err("a body of another length than its header says");
        }
        let notice = head.as_notice()?;
        if let Stage::Open { out } = &mut self.stage
            && let Some(credits) = head.credits
        {
            out.acknowledge_low(credits.frames as u32, credits.data as u32)?;
        }
        if notice.is_none()
            && let Some(queue) = queue
        {
            queue.admit(len, self.fin)?;
            return Ok(None);
        }
        match notice {
            None => Err("a frame before the handshake"),
            Some(_) if matches!(data, Data::Fetchable(_)) || len > LONGEST => {
                Err("a notice that is too long")
            }
            notice => Ok(notice),
        }
    }
}
