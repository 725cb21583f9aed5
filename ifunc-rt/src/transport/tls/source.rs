//! The source's side of making a connection.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustls::{AlertDescription, ClientConnection, Error};

use super::connection::{Connection, Doorbell};
use super::credentials::{self, Client, Proof, Unknown};
use super::flow::Flow;
use super::greeting::{self, Incoming};
use super::link;
use super::stream::{End, Stream};
use crate::keys::{CertificateError, TlsKeys};
use crate::transport::address::{Address, HostPort};
use crate::transport::socket::{connect_until, set_options, wait};
use crate::transport::watch::{Watch, Watcher};
use crate::transport::{Certified, ConnectConfig, ConnectError, Link, Peer};

/// Time of an attempt to reach the host. The kernel repeats what is lost after 1 s, 3 s, 7 s …: a new attempt is answered as soon as the
/// link is up.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The number of a source's connection at its own doorbell.
const NUMBER: u64 = 1;

/// Connects to the target at `at`.
pub(in crate::transport) fn connect(
    at: &HostPort,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    let attempt = Attempt {
        address: Address::Tls(at.clone()).to_string(),
        deadline,
    };
    let keys = TlsKeys::or_env(config.tls.as_ref()).map_err(|problem| attempt.keys(problem))?;
    attempt.check_targets(&keys)?;
    let socket = attempt.reach(at, config)?;
    let mut incoming = Incoming::default();
    let sent = greeting::of_source(&config.hello);
    let stream = attempt.converse(
        &keys,
        &at.host,
        socket.as_fd(),
        &sent,
        |_| Ok(()),
        |bytes| {
            incoming.take(bytes)?;
            Ok(incoming.message().is_some())
        },
        || (Instant::now() < deadline).then_some(deadline),
    )?;
    let message = incoming.message().unwrap_or_default();
    let answer = greeting::parse(message, config.max_ring);
    let (hello, [to_target, to_source]) =
        answer.map_err(|declined| declined.into_error(attempt.address.clone()))?;
    let peer = attempt.peer(&stream, &keys, &at.host)?;
    let watching = |error| attempt.failed("watching the connection", error);
    let watcher = Watcher::of_this_process().map_err(watching)?;
    let doorbell = Arc::new(Doorbell::new().map_err(watching)?);
    let (socket, flow) = (Watch::new(&watcher, socket), Flow::new(to_source, to_target));
    let connection = Connection::new(socket, stream, flow, doorbell, NUMBER, false).map_err(watching)?;
    Ok(link::new(&connection, hello, peer, None, to_target.max_body()))
}

/// One attempt to connect.
pub(super) struct Attempt {
    pub(super) address: String,
    pub(super) deadline: Instant,
}

impl Attempt {
    /// Checks whether a target can be known by the keys.
    pub(super) fn check_targets(&self, keys: &TlsKeys) -> Result<(), ConnectError> {
        if keys.has_no_peers() && keys.targets().is_none() {
            return Err(self.keys(
                "this process knows the key of no target; help: `TlsKeys::peer`, or name the file of the target's public key in IFUNC_TLS_PEERS, or that of its authority in IFUNC_TLS_AUTHORITY".into(),
            ));
        }
        Ok(())
    }

    /// Sends a message inside of TLS to the target of this name, and calls `take` with what it answers, until `take` returns that this was
    /// all. `check` sees the socket before what has arrived is taken for TLS. Before each wait `next_wait` says until when to wait;
    /// `None`: not any more.
    #[expect(
        clippy::too_many_arguments,
        reason = "both transports state all of them, once"
    )]
    pub(super) fn converse(
        &self,
        keys: &TlsKeys,
        name: &str,
        socket: BorrowedFd<'_>,
        message: &[u8],
        mut check: impl FnMut(BorrowedFd<'_>) -> Result<(), ConnectError>,
        mut take: impl FnMut(&[u8]) -> Result<bool, &'static str>,
        mut next_wait: impl FnMut() -> Option<Instant>,
    ) -> Result<Stream, ConnectError> {
        let Client { config: tls, unknown } =
            Client::new(keys, name).map_err(|error| self.keys(error.to_string()))?;
        let tls = ClientConnection::new(tls, credentials::server_name())
            .map_err(|error| self.keys(error.to_string()))?;
        let mut stream = Stream::new(tls);
        // TLS keeps it until both sides have proved their keys.
        stream.encrypt(message, &[]);
        let mut is_whole = false;
        loop {
            let flushed = stream.flush(socket);
            check(socket)?;
            let received = stream.receive(socket, |bytes| {
                is_whole = take(bytes)?;
                Ok(())
            });
            // The answer to what was received: an alert, if TLS refuses it.
            let answered = stream.flush(socket);
            if is_whole {
                return Ok(stream);
            }
            if let Err(end) = received.and(flushed).and(answered) {
                return Err(self.ended(end, &unknown, keys));
            }
            let Some(until) = next_wait() else {
                return Err(self.timeout("it accepted the connection and did not answer"));
            };
            let writing = if stream.has_backlog() {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            wait(socket, PollFlags::IN | writing, until);
        }
    }

    /// Who the target at the other end of the stream is.
    pub(super) fn peer(&self, stream: &Stream, keys: &TlsKeys, host: &str) -> Result<Peer, ConnectError> {
        let Some(Proof { key, chain }) = stream.peer() else {
            return Err(self.protocol("it speaks another protocol over TLS"));
        };
        let certified = chain.map(|chain| {
            let name = keys.targets().and_then(|(_, name)| name).unwrap_or(host).into();
            Arc::new(Certified { name, chain })
        });
        Ok(Peer {
            uid: None,
            pid: None,
            key: Some(key),
            certified,
        })
    }

    /// A socket that is connected to what listens there.
    fn reach(&self, at: &HostPort, config: &ConnectConfig) -> Result<OwnedFd, ConnectError> {
        let host = at
            .resolve()
            .map_err(|error| self.failed("looking for the host", error))?;
        let attempt = || {
            loop {
                let end = self.deadline.min(Instant::now() + ATTEMPT);
                match connect_until(host, end) {
                    Ok(None) if Instant::now() < self.deadline => {}
                    result => return result,
                }
            }
        };
        let socket = match attempt() {
            Ok(Some(socket)) => socket,
            Ok(None) => return Err(self.timeout("its host does not answer")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::NobodyListens {
                    address: self.address.clone(),
                    path: None,
                });
            }
            Err(error) => return Err(self.failed("connecting", error)),
        };
        set_options(socket.as_fd(), config.peer_timeout)
            .map_err(|error| self.failed("setting the options of the socket", error.into()))?;
        Ok(socket)
    }

    /// What it means that the stream ended before the target's answer was there.
    fn ended(&self, end: End, unknown: &OnceLock<Unknown>, keys: &TlsKeys) -> ConnectError {
        let not_certified = |problem| ConnectError::Certificate {
            address: self.address.clone(),
            problem,
        };
        match (end, unknown.get()) {
            (_, Some(&Unknown::Key(key))) => ConnectError::UnknownTarget {
                address: self.address.clone(),
                key,
            },
            (_, Some(Unknown::Certificate(problem))) => not_certified(problem.clone()),
            // A target that has no certificate does not answer a source that asks for one.
            (End::Tls(Error::AlertReceived(AlertDescription::HandshakeFailure)), _)
                if keys.targets().is_some() =>
            {
                not_certified(CertificateError::Missing)
            }
            // Worth another attempt: too many connections are being made to the target, or it stops.
            (End::Cut | End::Closed, _) => ConnectError::Busy {
                address: self.address.clone(),
                reason: "it closed the connection before the handshake was over".into(),
            },
            (End::Tls(Error::AlertReceived(alert)), _) => {
                tracing::debug!(?alert, address = self.address, "TLS refused a handshake");
                self.protocol("it refused the TLS handshake")
            }
            (End::Tls(error), _) => {
                tracing::debug!(%error, address = self.address, "a TLS handshake failed");
                self.protocol("it does not speak TLS 1.3 with keys of ed25519")
            }
            (End::Malformed(problem), _) => self.protocol(problem),
        }
    }

    fn keys(&self, problem: String) -> ConnectError {
        ConnectError::Keys {
            address: self.address.clone(),
            problem,
        }
    }

    fn timeout(&self, waiting_for: &'static str) -> ConnectError {
        ConnectError::Timeout {
            address: self.address.clone(),
            waiting_for,
        }
    }

    fn protocol(&self, problem: &'static str) -> ConnectError {
        ConnectError::Protocol {
            address: self.address.clone(),
            problem,
        }
    }

    fn failed(&self, doing: &str, source: io::Error) -> ConnectError {
        ConnectError::Io {
            doing: format!("{}: {doing}", self.address),
            source,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::keys::{SecretKey, TlsKeys};
    use crate::transport::ConnectConfig;

    fn attempt(within: Duration) -> Attempt {
        Attempt {
            address: "tls://there:1".into(),
            deadline: Instant::now() + within,
        }
    }

    fn reach(attempt: &Attempt, at: &TcpListener) -> Result<OwnedFd, ConnectError> {
        let at = at.local_addr().unwrap();
        let at = HostPort {
            host: at.ip().to_string(),
            port: at.port(),
        };
        attempt.reach(&at, &ConnectConfig::default())
    }

    #[test]
    fn a_host_that_does_not_answer_is_tried_until_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reached = reach(&attempt(Duration::from_secs(30)), &listener);
        assert!(reached.is_ok());
        // Its queue of new connections is full: the kernel drops what would be another one.
        rustix::net::listen(&listener, 0).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let _full = [(); 2].map(|()| connect_until(listener.local_addr().unwrap(), soon));
        let waiting = attempt(Duration::from_millis(100));
        let error = reach(&waiting, &listener).unwrap_err();
        assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
        let late = Instant::now().checked_duration_since(waiting.deadline).unwrap();
        assert!(late < ATTEMPT, "{late:?}");
    }

    #[test]
    fn only_a_refused_connection_says_that_nobody_listens() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let to = |host: &str| {
            let port = at.port();
            let at = HostPort {
                host: host.into(),
                port,
            };
            attempt(Duration::from_secs(30))
                .reach(&at, &ConnectConfig::default())
                .unwrap_err()
        };
        let refused = to("127.0.0.1");
        assert!(matches!(refused, ConnectError::NobodyListens { .. }), "{refused}");
        // An address that no socket of TCP connects to.
        let other = to("255.255.255.255");
        assert!(matches!(other, ConnectError::Io { .. }), "{other}");
    }

    #[test]
    fn what_a_stream_that_ended_means_depends_on_what_was_asked_for() {
        let raw = TlsKeys::new(SecretKey::from_seed([3; 32], ""));
        let no_unknown = OnceLock::new();
        let ended = |end, keys: &TlsKeys| attempt(Duration::ZERO).ended(end, &no_unknown, keys);
        let refused = || End::Tls(Error::AlertReceived(AlertDescription::HandshakeFailure));
        // A source that asks for a raw key does not miss a certificate.
        assert!(matches!(ended(refused(), &raw), ConnectError::Protocol { .. }));
        for end in [End::Cut, End::Closed] {
            let error = ended(end, &raw);
            assert!(
                matches!(error, ConnectError::Busy { .. }) && error.may_pass(),
                "{error}"
            );
        }
        let error = ended(End::Malformed("no"), &raw);
        assert!(
            matches!(error, ConnectError::Protocol { problem: "no", .. }),
            "{error}"
        );
    }
}
