//! A target, and both ends of a connection, whose engines are in the test's hands.

use std::net::TcpListener;
use std::sync::Arc;

use ::ucx::Library;

use super::*;
use crate::transport::ConnectError;
use crate::transport::config::{ConnectConfig, PEER_TIMEOUT};
use crate::transport::ucx::attempts::Attempt;
use crate::transport::ucx::credits::send_window;
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::exchange;
use crate::transport::ucx::exchange::source::Host;
use crate::transport::ucx::link;
use crate::transport::ucx::source::Calling;
use crate::transport::ucx::table::{Acceptor, Connection, ConnectionId, Stage};

/// An engine of this host.
pub(super) fn engine(mode: Mode) -> Arc<Engine> {
    let ucx = Library::load().unwrap();
    Engine::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT, mode).unwrap()
}

/// A connection that is open, with the smallest rings.
pub(super) fn open() -> Connection {
    open_with(small().to_target)
}

/// A connection that is open, with rings of this size.
pub(super) fn open_with(size: RingSize) -> Connection {
    Connection {
        stage: Stage::Open {
            out: send_window(size),
        },
        ..Connection::default()
    }
}

/// A target that listens on this host.
pub(super) struct Served {
    pub(super) engine: Arc<Engine>,
    pub(super) to: Address,
    _exchange: Arc<exchange::acceptor::Acceptor>,
}

impl Served {
    pub(super) fn new(mode: Mode, config: &ListenConfig) -> Self {
        let engine = engine(mode);
        engine.lock().state.acceptor = Some(Acceptor::new(true, config));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = HostPort {
            host: "127.0.0.1".into(),
            port: socket.local_addr().unwrap().port(),
        };
        let exchange = exchange::acceptor::Acceptor::new(&engine, socket.into(), mode, config, None);
        Self {
            engine,
            to: Address::Ucx(at),
            _exchange: exchange.unwrap(),
        }
    }

    /// Forgets all connections.
    pub(super) fn forget_all(&self) {
        let mut locked = self.engine.lock();
        for id in locked.state.connections.ids() {
            locked.forget(id);
        }
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
    let id = locked.state.connections.next_id();
    let size = match &connection.stage {
        Stage::Open { out } => Some(RingSize {
            slots: out.capacity().frames as u32,
            data: out.capacity().data as u32 * BODY_ALIGN as u32,
        }),
        _ => None,
    };
    locked.state.connections.insert(id, connection);
    if let Some(size) = size {
        locked.open(id, size, size);
    }
    id
}

/// The engine of a source. It forgets its connections when it goes, for which the test's target need not work.
pub(super) struct OfSource(Option<Arc<Engine>>);

impl OfSource {
    /// Leaves the engine to its other owners.
    pub(super) fn leave(mut self) {
        self.0 = None;
    }
}

impl std::ops::Deref for OfSource {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        self.0.as_ref().unwrap()
    }
}

impl Drop for OfSource {
    fn drop(&mut self) {
        if let Some(engine) = &self.0 {
            engine.lock().forget_all();
        }
    }
}

/// A source's engine asks a target for its worker, and says hello there.
pub(super) fn call(engine: &Arc<Engine>, to: &Address) -> Result<Calling, ConnectError> {
    let at = host_port(to);
    let host = Host {
        mode: engine.lock().state.mode,
        at: at.resolve().unwrap(),
        name: &at.host,
        address: "there",
    };
    engine.call_host(&host, &ConnectConfig::default(), &mut Attempt::first(soon()))
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
        let (here, served) = (OfSource(Some(engine(mode))), Served::new(mode, config));
        let mut calling = call(&here, &served.to).unwrap();
        let (mut source, mut of_target) = (None, None);
        wait_for("a connection", || {
            source = source.take().or_else(|| calling.poll());
            let mut locked = served.engine.lock();
            locked.progress();
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            of_target = of_target.or_else(|| acceptor.waiting.pop_front());
            (source.is_some() && of_target.is_some()).then_some(())
        });
        let id = here.lock().state.connections.ids()[0];
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
