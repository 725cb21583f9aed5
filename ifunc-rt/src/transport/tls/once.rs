//! TLS around one message of each side, for a transport that learns by it who its peer is and then goes on by other means; and around
//! what such a transport says beside those.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::acceptor::admit;
use super::server::Handshake;
use super::source::Attempt;
use super::stream::{End, Stream};
use super::{credentials, listener};
use crate::keys::{PublicKey, TlsKeys};
use crate::policy::Connect;
use crate::transport::{ConnectError, ListenError, Peer};

/// What a target answers handshakes by.
pub(in crate::transport) struct Server {
    tls: credentials::Server,
    keys: TlsKeys,
}

impl Server {
    /// Of a target that listens at `address`.
    ///
    /// # Errors
    /// No peer could connect by its key.
    pub(in crate::transport) fn new(
        address: &str,
        keys: TlsKeys,
        connect: &Connect,
    ) -> Result<Self, ListenError> {
        let tls = listener::server(address, &keys, connect)?;
        Ok(Self { tls, keys })
    }

    /// The target's key.
    pub(in crate::transport) fn key(&self) -> PublicKey {
        self.keys.key().public()
    }
}

/// A handshake of a source, and its message.
#[derive(Default)]
pub(in crate::transport) struct Asked(Handshake);

impl Asked {
    /// Takes what has arrived, and calls `take` with what was encrypted. Returns whether the source has proved its key.
    ///
    /// # Errors
    /// The connection is over. The reason for the log, if it is worth a line.
    pub(in crate::transport) fn advance(
        &mut self,
        socket: BorrowedFd<'_>,
        server: &Server,
        take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<bool, Option<String>> {
        match self.0.advance(socket, &server.tls, take) {
            Err(End::Cut | End::Closed) => Err(None),
            Err(end) => Err(Some(format!("{end:?}"))),
            // A peer that does not read as little as a handshake is not worth waiting for.
            Ok(()) if self.0.has_backlog() => Err(None),
            Ok(()) => Ok(self.0.is_established()),
        }
    }

    /// Decides whether the source connects. `None`: it speaks another protocol.
    pub(in crate::transport) fn admit(
        self,
        server: &Server,
        connect: &Connect,
        from: Option<SocketAddr>,
    ) -> Option<(Encrypted, Result<Peer, String>)> {
        let (stream, proof) = self.0.into_established()?;
        Some((Encrypted(stream), admit(connect, &server.keys, proof, from)))
    }
}

/// A stream whose ends have proved their keys.
pub(in crate::transport) struct Encrypted(Stream);

impl Encrypted {
    /// Sends a message. Returns whether the socket took all of it.
    pub(in crate::transport) fn send(&mut self, socket: BorrowedFd<'_>, message: &[u8]) -> bool {
        self.0.encrypt(message, &[]);
        self.flush(socket)
    }

    /// Sends a message after which nothing follows. Returns whether the socket took all of it.
    pub(in crate::transport) fn send_last(mut self, socket: BorrowedFd<'_>, message: &[u8]) -> bool {
        self.0.encrypt(message, &[]);
        self.0.close();
        self.flush(socket)
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) -> bool {
        self.0.flush(socket).is_ok() && !self.0.has_backlog()
    }

    /// Takes what has arrived, a bounded number of bytes, and calls `take` with what was encrypted.
    ///
    /// # Errors
    /// The peer closed the socket: no reason; or TLS refuses what it sent.
    pub(in crate::transport) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), Option<&'static str>> {
        self.0.receive_little(socket, take).map_err(|end| match end {
            End::Closed | End::Cut => None,
            End::Tls(_) => Some("a record that TLS refuses"),
            End::Malformed(why) => Some(why),
        })
    }
}

/// Sends a message to the target at `address`, and calls `take` with what it answers, until `take` returns that this was all. `check`
/// sees the socket before what has arrived is taken for TLS. Before each wait `next_wait` says until when to wait; `None`: not any more.
/// Returns who the target is, and the stream.
///
/// # Errors
/// The target is none that this process knows, refuses the handshake or does not answer.
pub(in crate::transport) fn ask(
    (address, host): (&str, &str),
    keys: &TlsKeys,
    socket: BorrowedFd<'_>,
    message: &[u8],
    check: impl FnMut(BorrowedFd<'_>) -> Result<(), ConnectError>,
    take: impl FnMut(&[u8]) -> Result<bool, &'static str>,
    next_wait: impl FnMut() -> Option<Instant>,
) -> Result<(Peer, Encrypted), ConnectError> {
    let attempt = Attempt {
        address: address.to_owned(),
        deadline: Instant::now(),
    };
    attempt.check_targets(keys)?;
    let stream = attempt.converse(keys, host, socket, message, check, take, next_wait)?;
    let peer = attempt.peer(&stream, keys, host)?;
    Ok((peer, Encrypted(stream)))
}
