//! Which peers a target takes, with so many others there; decided by an engine that the test has in its hands.

use std::sync::Arc;

use ::ucx::Library;

use super::unauthenticated::Peer;
use super::*;
use crate::policy::Policy;
use crate::transport::config::{ConnectConfig, PEER_TIMEOUT};
use crate::transport::handshake::MOST_WAITING;
use crate::transport::ucx::acceptor::MOST_HALF_OPEN;
use crate::transport::ucx::credits::{Incoming, send_window};
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::handshake::Hello;
use crate::transport::ucx::header::Name;
use crate::transport::ucx::table::{Acceptor, Connection, ConnectionId, Stage};

/// A connection that is open.
fn open() -> Connection {
    let size = small().to_target;
    let mut connection = Connection::default();
    connection.stage = Stage::Open {
        out: send_window(size),
        incoming: Incoming::new(size),
    };
    connection
}

/// A target that listens on this host.
struct Served {
    engine: Arc<Engine>,
    to: Address,
    /// Kept: the descriptors of one that has ended may be another's, of which UCX 1.13 has events left.
    peers: Vec<Peer>,
}

impl Served {
    fn new(mode: Mode, config: &ListenConfig) -> Self {
        let ucx = Library::load().unwrap();
        let engine = Engine::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT, mode).unwrap();
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
    fn forget_all(&self) {
        let mut locked = self.engine.lock();
        for id in Vec::from_iter(locked.state.connections.keys().copied()) {
            locked.forget(id);
        }
    }

    /// As many half-open connections as there are to be, whose time is over in so long.
    fn half_open(&self, count: usize, timeout: Duration) {
        self.forget_all();
        let mut locked = self.engine.lock();
        for _ in 0..count {
            let id = insert(&mut locked, Connection::default());
            locked.state.set_deadline(id, Some(timeout));
        }
    }

    /// Whether a peer of UCX's that connects is taken.
    fn takes(&mut self) -> bool {
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
fn insert(locked: &mut Locked<'_>, connection: Connection) -> ConnectionId {
    let last = locked.state.connections.last_key_value();
    let id = ConnectionId(last.map_or(0, |(id, _)| id.0).max(1000) + 1);
    locked.state.connections.insert(id, connection);
    id
}

/// A source says hello on a half-open connection; whether it is taken.
fn hello(locked: &mut Locked<'_>) -> bool {
    let id = insert(locked, Connection::default());
    locked.state.set_deadline(id, Some(Duration::from_secs(60)));
    let hello = Hello {
        hello: ConnectConfig::default().hello,
        name: Name::new(3, 4),
        address: None,
    };
    locked.receive_hello(id, Ok(hello)).unwrap();
    let taken = match &locked.state.connections[&id].stage {
        Stage::Open { .. } | Stage::Put(_) => true,
        Stage::TurnedAway => false,
        other => panic!("{other:?}"),
    };
    // Its handshake is over, or it has time to read why not; one whose frames are put is to send its ring.
    let is_timed = locked.state.connections[&id].deadline.is_some();
    assert_eq!(is_timed, !taken || locked.state.mode == Mode::Puts);
    taken
}

#[test]
fn half_open_connections_have_as_many_places_as_are_stated() {
    if !has_ucx() {
        return;
    }
    let long = Duration::from_secs(60);
    let mut served = Served::new(Mode::Messages, &small());
    for (others, is_taken) in [(MOST_HALF_OPEN - 1, true), (MOST_HALF_OPEN, false)] {
        served.half_open(others, long);
        assert_eq!(served.takes(), is_taken, "beside {others}");
    }
    // Those whose time is over go first.
    served.half_open(MOST_HALF_OPEN, Duration::ZERO);
    assert!(served.takes());
}

#[test]
fn peers_that_are_not_admitted_leave_half_of_the_places_to_others() {
    if !has_ucx() {
        return;
    }
    let policy = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
    let config = ListenConfig {
        connect: policy.connect.into(),
        ..small()
    };
    let mut served = Served::new(Mode::Messages, &config);
    for (others, is_taken) in [(MOST_HALF_OPEN / 2 - 1, true), (MOST_HALF_OPEN / 2, false)] {
        served.half_open(others, Duration::from_secs(60));
        assert_eq!(served.takes(), is_taken, "beside {others}");
    }
}

#[test]
fn only_connections_that_are_open_count_against_the_most() {
    if !has_ucx() {
        return;
    }
    let config = ListenConfig {
        max_connections: 2,
        ..small()
    };
    let served = Served::new(Mode::Messages, &config);
    let mut locked = served.engine.lock();
    let (mut gone, mut closed) = (open(), open());
    gone.end(LinkError::Closed);
    closed.closed = true;
    for connection in [open(), gone, closed, Connection::default()] {
        insert(&mut locked, connection);
    }
    assert!(hello(&mut locked), "one of two");
    assert!(!hello(&mut locked), "a third");
}

#[test]
fn no_more_connections_wait_for_a_target_than_are_stated() {
    if !has_ucx() {
        return;
    }
    for mode in [Mode::Messages, Mode::Puts] {
        let served = Served::new(mode, &small());
        let mut locked = served.engine.lock();
        for (waiting, is_taken) in [(MOST_WAITING - 1, true), (MOST_WAITING, false)] {
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            acceptor.waiting.clear();
            acceptor.waiting.resize(waiting, ConnectionId(0));
            assert_eq!(hello(&mut locked), is_taken, "{mode:?} behind {waiting}");
        }
    }
}
