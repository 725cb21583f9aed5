//! A peer of UCX's that is in the test's hands, and says anything.

use ::ucx::{Flags, Library};

use std::os::fd::AsFd as _;

use super::*;
use crate::transport::config::PEER_TIMEOUT;
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::exchange::liveness::Liveness;
use crate::transport::ucx::exchange::notices::Channel;
use crate::transport::ucx::exchange::source::{Answered, Host};
use crate::transport::ucx::handshake::{Hello, Nonce};
use crate::transport::ucx::header::{Head, Name, Notice};
use crate::transport::ucx::packet::BODY;
use crate::transport::ucx::requests::Parts;
use crate::transport::ucx::table::{ConnectionId, Stage};
use crate::transport::window::Credits;
use crate::transport::{ConnectConfig, ConnectError};

/// A client of UCX that says what it likes.
pub(super) struct Peer {
    pub(super) engine: std::sync::Arc<Engine>,
    pub(super) id: ConnectionId,
    /// That of the target's answer.
    pub(super) nonce: Nonce,
    /// The socket of the exchange.
    socket: Option<std::os::fd::OwnedFd>,
}

/// What a target answers an engine that asks for its worker.
pub(super) fn ask(engine: &Engine, to: &Address) -> Result<Answered, ConnectError> {
    ask_with(engine, to, &ConnectConfig::default())
}

pub(super) fn ask_with(
    engine: &Engine,
    to: &Address,
    config: &ConnectConfig,
) -> Result<Answered, ConnectError> {
    let own = engine.lock().address().unwrap();
    let at = host_port(to);
    let host = Host {
        mode: engine.lock().state.mode,
        at: at.resolve().unwrap(),
        name: &at.host,
        address: &to.to_string(),
    };
    host.ask(&own, config, soon(), || false)
}

impl Peer {
    pub(super) fn new(to: &Address) -> Self {
        let mode = match to {
            Address::UcxPut(_) => Mode::Puts,
            _ => Mode::Messages,
        };
        let ucx = Library::load().unwrap();
        let at = host_port(to).resolve().unwrap();
        let engine = Engine::new(ucx, Some(at.ip()), PEER_TIMEOUT, mode).unwrap();
        let answered = ask(&engine, to).unwrap();
        let mut locked = engine.lock();
        let endpoint = locked.route_to(&answered.worker).unwrap();
        let id = locked.state.insert(endpoint, Stage::Calling);
        let connection = locked.state.connections.get_mut(&id).unwrap();
        connection.peer = answered.nonce.name();
        connection.am_id = Some(answered.worker.am_id());
        if mode == Mode::Puts {
            let socket = answered.socket.try_clone().unwrap();
            let channel = Some(Channel::new(answered.encrypted));
            connection.socket = Some(Liveness::of_source(&engine, id, socket, channel).unwrap());
        }
        drop(locked);
        Self {
            engine,
            id,
            nonce: answered.nonce,
            socket: Some(answered.socket),
        }
    }

    /// Sends a notice.
    pub(super) fn notice(&self, notice: Notice, number: u64, body: &[u8]) {
        let mut locked = self.engine.lock();
        locked.notify_peer(self.id, notice, number, body);
    }

    /// Sends what comes where notices do: over the socket, if frames are put.
    pub(super) fn notice_of(&self, head: &Head, body: &[u8]) {
        self.engine.lock().send_notice(self.id, head, body);
    }

    pub(super) fn send(&self, head: Head, body: &[u8]) {
        let mut locked = self.engine.lock();
        let mut packet = locked.packet(body.len());
        packet.body_mut(body.len()).copy_from_slice(body);
        drop(locked.send(self.id, packet, head, body.len()));
    }

    /// Sends a message without a header: the name by which the target knows the connection, and anything after it.
    pub(super) fn send_packed(&self, entries: &[u8]) {
        let mut locked = self.engine.lock();
        let name = locked.state.connections[&self.id].peer;
        let bytes = [&name.0.to_le_bytes(), entries].concat();
        let mut packet = locked.packet(bytes.len());
        packet.body_mut(bytes.len()).copy_from_slice(&bytes);
        let message = Parts {
            header: 0..0,
            data: BODY..BODY + bytes.len(),
            flags: Flags::EAGER,
            sent: Credits::default(),
        };
        drop(locked.post_message(self.id, packet, message));
    }

    pub(super) fn hello(&self) {
        self.notice(Notice::Hello, 0, &self.greeting());
    }

    pub(super) fn greeting(&self) -> Vec<u8> {
        let locked = self.engine.lock();
        Hello {
            hello: ConnectConfig::default().hello,
            name: locked.state.connections[&self.id].name,
            nonce: self.nonce,
            address: None,
        }
        .encode(locked.state.mode)
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        let mut locked = self.engine.lock();
        locked.progress();
        look(&mut locked)
    }

    /// Closes the socket of the exchange, as a source does whose connection is over.
    pub(super) fn leave(&mut self) {
        self.socket = None;
        if let Some(connection) = self.engine.lock().state.connections.get_mut(&self.id) {
            connection.socket = None;
        }
    }

    /// Whether the target has closed the connection: its endpoint, or the socket of the exchange.
    pub(super) fn is_gone(&self) -> bool {
        let socket = self.socket.as_ref();
        socket.is_some_and(|socket| crate::os::is_hung_up(socket.as_fd()))
            || self.look(|locked| locked.state.connections[&self.id].gone.is_some())
    }
}

pub(super) fn frame(sequence: u32, len: usize) -> Head {
    Head {
        sequence,
        len: len as u32,
        words: Header::new(Kind::Exec, 7, 9).words(),
        credits: Some(Credits::default()),
        to: Name::NONE,
    }
}
