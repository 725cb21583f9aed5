//! A target, and both ends of a connection, whose engines are in the test's hands.

use std::net::SocketAddr;
use std::sync::Arc;

use ::ucx::Library;

use super::peer::Peer;
use super::*;
use crate::transport::config::{ConnectConfig, PEER_TIMEOUT};
use crate::transport::ucx::credits::{Incoming, send_window};
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::link;
use crate::transport::ucx::table::{Acceptor, Connection, ConnectionId, Stage};

/// An engine of this host.
pub(super) fn engine(mode: Mode) -> Arc<Engine> {
    let ucx = Library::load().unwrap();
    Engine::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT, mode).unwrap()
}

/// A connection that is open.
pub(super) fn open() -> Connection {
    let size = small().to_target;
    let mut connection = Connection::default();
    connection.stage = Stage::Open {
        out: send_window(size),
        incoming: Incoming::new(size),
    };
    connection
}

/// A target that listens on this host.
pub(super) struct Served {
    pub(super) engine: Arc<Engine>,
    pub(super) to: Address,
    /// Kept: the descriptors of one that has ended may be another's, of which UCX 1.13 has events left.
    peers: Vec<Peer>,
}

impl Served {
    pub(super) fn new(mode: Mode, config: &ListenConfig) -> Self {
        let engine = engine(mode);
        let mut locked = engine.lock();
        let listener = locked.worker.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let at = HostPort {
            host: "127.0.0.1".into(),
            port: listener.address().port(),
        };
        locked.state.acceptor = Some(Acceptor::new(Some(listener), config));
        drop(locked);
        Self {
            engine,
            to: Address::Ucx(at),
            peers: Vec::new(),
        }
    }

    /// Forgets all connections.
    pub(super) fn forget_all(&self) {
        let mut locked = self.engine.lock();
        for id in Vec::from_iter(locked.state.connections.keys().copied()) {
            locked.forget(id);
        }
    }

    /// As many half-open connections as there are to be, whose time is over in so long.
    pub(super) fn half_open(&self, count: usize, timeout: Duration) {
        self.forget_all();
        let mut locked = self.engine.lock();
        for _ in 0..count {
            let id = insert(&mut locked, Connection::default());
            locked.state.set_deadline(id, Some(timeout));
        }
    }

    /// Whether a peer of UCX's that connects is taken.
    pub(super) fn takes(&mut self) -> bool {
        let before = Vec::from_iter(self.engine.lock().state.half_open());
        let peer = Peer::new(&self.to);
        let is_taken = wait_for("an answer", || {
            self.engine.lock().progress();
            let is_rejected = peer.look(|locked| locked.state.connections[&peer.id].gone.is_some());
            let locked = self.engine.lock();
            let mut half_open = locked.state.half_open();
            let is_taken = half_open.any(|id| !before.contains(&id));
            (is_rejected || is_taken).then_some(is_taken)
        });
        self.peers.push(peer);
        is_taken
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // An engine that ends waits for the handshakes.
        self.forget_all();
    }
}

/// Adds a connection that has no endpoint.
pub(super) fn insert(locked: &mut Locked<'_>, connection: Connection) -> ConnectionId {
    let last = locked.state.connections.last_key_value();
    let id = ConnectionId(last.map_or(0, |(id, _)| id.0).max(1000) + 1);
    locked.state.connections.insert(id, connection);
    id
}

/// The engine of a source. It forgets its connections when it goes, for which the test's target need not work.
pub(super) struct OfSource(Arc<Engine>);

impl std::ops::Deref for OfSource {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for OfSource {
    fn drop(&mut self) {
        self.lock().forget_all();
    }
}

/// Both ends of a connection.
pub(super) struct Pair {
    pub(super) here: OfSource,
    pub(super) source: Link,
    pub(super) target: Link,
    pub(super) served: Served,
    /// What the source calls the connection.
    pub(super) id: ConnectionId,
    /// What the target calls it.
    pub(super) of_target: ConnectionId,
}

impl Pair {
    pub(super) fn new(mode: Mode, config: &ListenConfig) -> Self {
        let (here, served) = (OfSource(engine(mode)), Served::new(mode, config));
        let at: SocketAddr = host_port(&served.to).resolve().unwrap();
        let hello = ConnectConfig::default().hello;
        let mut calling = here.lock().call_host(&here, at, hello, "there").unwrap();
        let (mut source, mut of_target) = (None, None);
        wait_for("a connection", || {
            source = source.take().or_else(|| calling.poll());
            let mut locked = served.engine.lock();
            locked.progress();
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            of_target = of_target.or_else(|| acceptor.waiting.pop_front());
            (source.is_some() && of_target.is_some()).then_some(())
        });
        let id = *here.lock().state.connections.first_key_value().unwrap().0;
        let of_target = of_target.unwrap();
        Self {
            source: source.unwrap().unwrap(),
            target: link::new(&served.engine, of_target).unwrap(),
            here,
            served,
            id,
            of_target,
        }
    }
}
