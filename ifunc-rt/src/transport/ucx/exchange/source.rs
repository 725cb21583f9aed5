//! The source's side.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ifunc_abi::hello::Exchange;
use rustix::event::PollFlags;

use super::{Incoming, first_byte, send_some};
use crate::keys::TlsKeys;
use crate::transport::address::WorkerAddress;
use crate::transport::handshake::{Declined, NO_KNOWN_FORM, declined_by};
use crate::transport::socket::{connect_while, set_options, wait};
use crate::transport::tls::once::{self, Encrypted};
use crate::transport::ucx::handshake::{Mode, Nonce};
use crate::transport::{ConnectConfig, ConnectError, Peer};

/// The longest wait between two checks whether an attempt is hopeless.
const SLICE: Duration = Duration::from_millis(50);

/// A target that listens at a socket.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport::ucx) struct Host<'a> {
    pub(in crate::transport::ucx) mode: Mode,
    pub(in crate::transport::ucx) at: SocketAddr,
    /// Its name, which its certificate has.
    pub(in crate::transport::ucx) name: &'a str,
    /// For errors.
    pub(in crate::transport::ucx) address: &'a str,
}

/// What a target answered.
pub(in crate::transport::ucx) struct Answered {
    pub(in crate::transport::ucx) nonce: Nonce,
    pub(in crate::transport::ucx) worker: WorkerAddress,
    /// Who the target is, where it has proved a key.
    pub(in crate::transport::ucx) known: Option<Peer>,
    pub(in crate::transport::ucx) socket: OwnedFd,
    /// The stream of what follows over the socket, where both have keys.
    pub(in crate::transport::ucx) encrypted: Option<Encrypted>,
}

/// Worth another attempt: too many connections are being made to the target, or it stops.
pub(in crate::transport::ucx) fn closed(address: String) -> ConnectError {
    ConnectError::Busy {
        address,
        reason: "it closed the connection before the handshake was over".into(),
    }
}

impl Host<'_> {
    /// Says the address of this process's worker, and waits for that of the target's until the deadline, or until the attempt is hopeless.
    pub(in crate::transport::ucx) fn ask(
        &self,
        own: &WorkerAddress,
        config: &ConnectConfig,
        deadline: Instant,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Result<Answered, ConnectError> {
        let keys = TlsKeys::given(config.tls.as_ref()).map_err(|problem| ConnectError::Keys {
            address: self.address.to_owned(),
            problem,
        })?;
        let mut next_wait = || {
            let now = Instant::now();
            (now < deadline && !is_hopeless()).then(|| deadline.min(now + SLICE))
        };
        let socket = self.reach(config, &mut next_wait)?;
        let own = own.to_bytes();
        let mut message = Vec::new();
        let asked = Exchange::Worker {
            nonce: Nonce::NONE.0,
            address: &own,
        };
        asked.encode(self.mode.tag(), &mut message);
        let mut incoming = Incoming::default();
        let (known, encrypted) = match &keys {
            None => {
                self.converse(socket.as_fd(), &message, &mut incoming, &mut next_wait)?;
                (None, None)
            }
            Some(keys) => {
                let check = |socket: BorrowedFd<'_>| self.check_encrypted(socket);
                let names = (self.address, self.name);
                let take = |bytes: &[u8]| incoming.take(bytes);
                let (known, encrypted) =
                    once::ask(names, keys, socket.as_fd(), &message, check, take, &mut next_wait)?;
                (Some(known), Some(encrypted))
            }
        };
        let (nonce, worker) = self.parse(incoming.message())?;
        Ok(Answered {
            nonce,
            worker,
            known,
            socket,
            encrypted,
        })
    }

    /// A socket that is connected to what listens there.
    fn reach(
        &self,
        config: &ConnectConfig,
        next_wait: &mut impl FnMut() -> Option<Instant>,
    ) -> Result<OwnedFd, ConnectError> {
        let failed = |doing: &str, source| ConnectError::Io {
            doing: format!("{}: {doing}", self.address),
            source,
        };
        let socket = match connect_while(self.at, next_wait) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Err(self.timeout("its host does not answer")),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::NobodyListens {
                    address: self.address.to_owned(),
                    path: None,
                });
            }
            Err(error) => return Err(failed("connecting", error)),
        };
        set_options(socket.as_fd(), config.peer_timeout)
            .map_err(|error| failed("setting the options of the socket", error.into()))?;
        Ok(socket)
    }

    /// Sends a message, and waits until the answer has arrived.
    fn converse(
        &self,
        socket: BorrowedFd<'_>,
        mut message: &[u8],
        incoming: &mut Incoming,
        mut next_wait: impl FnMut() -> Option<Instant>,
    ) -> Result<(), ConnectError> {
        loop {
            // Where the target has closed the socket, its answer may have arrived before.
            let sent = send_some(socket, message);
            match incoming.receive(socket) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(None) => return Err(self.closed()),
                Err(Some(problem)) => return Err(self.protocol(problem)),
            }
            message = &message[sent.map_err(|_| self.closed())?..];
            let Some(until) = next_wait() else {
                return Err(self.timeout("it accepted the connection and did not answer"));
            };
            let writing = if message.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::OUT
            };
            wait(socket, PollFlags::IN | writing, until);
        }
    }

    /// Checks whether what a target has sent may be encrypted: one that has no keys says so.
    fn check_encrypted(&self, socket: BorrowedFd<'_>) -> Result<(), ConnectError> {
        if first_byte(socket) != Ok(Some(Exchange::FIRST)) {
            return Ok(());
        }
        let mut incoming = Incoming::default();
        let until = Instant::now() + SLICE;
        self.converse(socket, &[], &mut incoming, || {
            (Instant::now() < until).then_some(until)
        })?;
        self.parse(incoming.message())?;
        // It sent the address of a worker, as if there were no keys.
        Err(self.protocol("it proves no key"))
    }

    /// What an answer says.
    fn parse(&self, answer: &[u8]) -> Result<(Nonce, WorkerAddress), ConnectError> {
        let reason = |why| String::from_utf8_lossy(why).into_owned();
        let declined = match Exchange::parse(self.mode.tag(), answer) {
            // One that echoes what it is sent.
            Ok(Exchange::Worker { nonce: 0, .. }) => NO_KNOWN_FORM,
            Ok(Exchange::Worker { nonce, address }) => match WorkerAddress::from_bytes(address) {
                Ok(worker) => return Ok((Nonce(nonce), worker)),
                Err(problem) => Declined::Malformed(problem),
            },
            Ok(Exchange::Refused(why)) => Declined::Refused(reason(why)),
            Ok(Exchange::Busy(why)) => Declined::Busy(reason(why)),
            Err(error) => declined_by(error),
        };
        Err(declined.into_error(self.address.to_owned()))
    }

    fn closed(&self) -> ConnectError {
        closed(self.address.to_owned())
    }

    fn timeout(&self, waiting_for: &'static str) -> ConnectError {
        ConnectError::Timeout {
            address: self.address.to_owned(),
            waiting_for,
        }
    }

    fn protocol(&self, problem: &'static str) -> ConnectError {
        ConnectError::Protocol {
            address: self.address.to_owned(),
            problem,
        }
    }
}
