//! The target's side.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};

use ifunc_abi::hello::{Exchange, HelloError};

use super::liveness::Liveness;
use super::notices::Channel;
use super::{Incoming, TLS, first_byte, send_whole};
use crate::observe::limited;
use crate::os::is_hung_up;
use crate::policy::SharedConnect;
use crate::transport::address::WorkerAddress;
use crate::transport::half_open::HalfOpen;
use crate::transport::handshake::cut;
use crate::transport::socket::peer_address;
use crate::transport::tls::once::{self, Encrypted};
use crate::transport::ucx::engine::{Engine, Visited};
use crate::transport::ucx::handshake::Mode;
use crate::transport::watch::{Token, Watch, Watched, Watcher};
use crate::transport::{ListenConfig, Peer};

/// What a source without a key is told.
const NO_KEY: &str = "it admits sources by their keys, and this process proves none; help: make one by `cargo ifunc keygen`, name its file in IFUNC_TLS_KEY or in `SourceOptions::tls`, and let the target admit it (`Policy::connect_key`, IFUNC_TLS_PEERS)";
/// What a source is told that asks for the target's key.
const NO_KEYS_HERE: &str = "it has no key, and this process connects by keys; help: give the target one (IFUNC_TLS_KEY, `TargetBuilder::tls`), or, where every host of the network is trusted, leave this process's out";

/// Answers sources on the background thread.
pub(in crate::transport::ucx) struct Acceptor {
    half_open: HalfOpen<Asking>,
    /// Its listener has the acceptor.
    engine: Weak<Engine>,
    mode: Mode,
    connect: SharedConnect,
    /// Where sources prove their keys.
    server: Option<once::Server>,
}

/// A source whose message has not arrived.
#[derive(Default)]
struct Asking {
    form: Form,
    incoming: Incoming,
}

#[derive(Default)]
enum Form {
    /// Nothing has arrived.
    #[default]
    Unknown,
    Plain,
    Tls(Box<once::Asked>),
}

/// Why a source is refused, and whether at this moment alone.
type Refused = (bool, String);

impl Acceptor {
    /// Answers what connects to a listening socket that does not block.
    ///
    /// # Errors
    /// The system refuses a thread or a descriptor.
    pub(in crate::transport::ucx) fn new(
        engine: &Arc<Engine>,
        listening: OwnedFd,
        mode: Mode,
        config: &ListenConfig,
        server: Option<once::Server>,
    ) -> std::io::Result<Arc<Self>> {
        let watcher = Watcher::of_this_process()?;
        let acceptor = Arc::new(Self {
            half_open: HalfOpen::new(&watcher, listening, config.peer_timeout),
            engine: Arc::downgrade(engine),
            mode,
            connect: config.connect.clone(),
            server,
        });
        acceptor.half_open.start(acceptor.as_watched())?;
        Ok(acceptor)
    }

    fn as_watched(self: &Arc<Self>) -> Weak<dyn Watched> {
        let this: Weak<Self> = Arc::downgrade(self);
        this
    }

    /// Takes what has arrived of a source's message. Returns the connection if more must arrive.
    fn advance(&self, socket: Watch, mut asking: Asking) -> Option<(Watch, Asking)> {
        match self.receive(&socket, &mut asking) {
            Ok(false) => return Some((socket, asking)),
            Ok(true) => self.answer(socket, asking),
            Err(None) => {}
            Err(Some(why)) => {
                let from = peer_address(socket.as_fd()).ok();
                limited!(
                    warn,
                    refused = "connection",
                    ?from,
                    why,
                    "closed a connection that is no source's"
                );
            }
        }
        None
    }

    /// Whether a source's message is there.
    ///
    /// # Errors
    /// The connection is over. The reason for the log, if it is worth a line.
    fn receive(&self, socket: &Watch, asking: &mut Asking) -> Result<bool, Option<String>> {
        let Asking { form, incoming } = asking;
        if let Form::Unknown = form {
            *form = match first_byte(socket.as_fd()) {
                Ok(None) => return Ok(false),
                Ok(Some(Exchange::FIRST)) => Form::Plain,
                Ok(Some(TLS)) if self.server.is_some() => Form::Tls(Box::default()),
                Ok(Some(TLS)) => {
                    self.refuse(socket, self.mode, (false, NO_KEYS_HERE.into()), None);
                    return Err(Some("it asks for this target's key, which has none".into()));
                }
                Ok(Some(_)) => return Err(Some("it does not say what it is".into())),
                Err(_) => return Err(None),
            };
        }
        match (form, &self.server) {
            (Form::Tls(asked), Some(server)) => {
                let take = |bytes: &[u8]| incoming.take(bytes).map(drop);
                let is_established = asked.advance(socket.as_fd(), server, take)?;
                Ok(is_established && incoming.is_whole())
            }
            _ => incoming
                .receive(socket.as_fd())
                .map_err(|why| why.map(str::to_owned)),
        }
    }

    /// Answers a source's message.
    fn answer(&self, socket: Watch, Asking { form, incoming }: Asking) {
        let connect = self.connect.get();
        let from = peer_address(socket.as_fd()).ok();
        let (answer, known) = match (form, &self.server) {
            (Form::Tls(asked), Some(server)) => match asked.admit(server, &connect, from) {
                Some((answer, known)) => (Some(answer), known.map(Some)),
                None => return,
            },
            (_, Some(_)) => {
                limited!(
                    warn,
                    refused = "connection",
                    ?from,
                    "refused a connection: the source proves no key"
                );
                (None, Err(NO_KEY.to_owned()))
            }
            (_, None) if connect.admits_address(from.map(|from| from.ip())) => (None, Ok(None)),
            (_, None) => {
                limited!(
                    warn,
                    refused = "connection",
                    ?from,
                    "refused a connection: the policy does not admit its address"
                );
                let address = from.map_or_else(|| "its address".into(), |from| from.ip().to_string());
                let why = format!(
                    "its policy does not admit {address}; help: `Policy::connect_from` on the target"
                );
                (None, Err(why))
            }
        };
        let mut mode = self.mode;
        let asked = known.map_err(|why| (false, why)).and_then(|known| {
            let address = worker_of(&mut mode, incoming.message());
            let address = address.inspect_err(|(_, why)| {
                limited!(warn, refused = "connection", ?from, why, "refused a connection");
            })?;
            Ok((known, address))
        });
        match asked {
            Ok((known, address)) => self.introduce(socket, known, &address, answer),
            Err(refused) => self.refuse(&socket, mode, refused, answer),
        }
    }

    /// Makes a connection to the source's worker, and answers with this side's.
    fn introduce(
        &self,
        socket: Watch,
        known: Option<Peer>,
        address: &WorkerAddress,
        answer: Option<Encrypted>,
    ) {
        let Some(engine) = Visited::of(&self.engine) else {
            return;
        };
        let mut locked = engine.lock();
        // UCX 1.13 keeps the socket of a connection that is refused at once, as by this host where the source's process has ended.
        if is_hung_up(socket.as_fd()) {
            return tracing::debug!("a source left before it was answered");
        }
        let introduced = locked.introduce(known, address);
        let (id, nonce, own) = match introduced {
            Ok(introduced) => introduced,
            Err(refused) => {
                let (from, why) = (peer_address(socket.as_fd()).ok(), &refused.1);
                limited!(warn, refused = "connection", ?from, why, "refused a connection");
                return self.refuse(&socket, self.mode, refused, answer);
            }
        };
        let own = own.to_bytes();
        let message = Exchange::Worker {
            nonce: nonce.0,
            address: &own,
        };
        let (is_sent, channel) = match self.mode {
            Mode::Messages => (self.send_last(&socket, self.mode, &message, answer), None),
            Mode::Puts => {
                let mut channel = Channel::new(answer);
                let is_sent = channel.send_bytes(socket.as_fd(), &encoded(self.mode, &message));
                (is_sent, Some(channel))
            }
        };
        let liveness = Liveness::new(Weak::clone(&self.engine), id, socket, channel);
        match liveness {
            Ok(liveness) if is_sent => {
                if let Some(connection) = locked.state.connections.get_mut(&id) {
                    connection.socket = Some(liveness);
                }
                let acceptor = locked.state.acceptor.as_ref();
                if acceptor.is_some_and(|acceptor| acceptor.asleep) {
                    // The thread has not armed the transports of this endpoint.
                    locked.wake();
                }
            }
            _ => locked.forget(id),
        }
    }

    /// Says that the target does not take the connection, and why.
    fn refuse(&self, socket: &Watch, mode: Mode, (is_busy, why): Refused, answer: Option<Encrypted>) {
        let why = cut(&why);
        let message = if is_busy {
            Exchange::Busy(why)
        } else {
            Exchange::Refused(why)
        };
        self.send_last(socket, mode, &message, answer);
        // What is not read when the socket is closed would cost the source the answer.
        let _ = Incoming::default().receive(socket.as_fd());
    }

    /// Sends an answer after which nothing follows over the socket. Returns whether that took all of it.
    fn send_last(
        &self,
        socket: &Watch,
        mode: Mode,
        message: &Exchange<'_>,
        answer: Option<Encrypted>,
    ) -> bool {
        let bytes = encoded(mode, message);
        match answer {
            Some(answer) => answer.send_last(socket.as_fd(), &bytes),
            None => send_whole(socket.as_fd(), &bytes),
        }
    }
}

fn encoded(mode: Mode, message: &Exchange<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(mode.tag(), &mut bytes);
    bytes
}

/// The address of a source's worker; `mode` becomes that in which the source is answered.
///
/// # Errors
/// The reason for the source.
pub(in crate::transport::ucx) fn worker_of(
    mode: &mut Mode,
    message: &[u8],
) -> Result<WorkerAddress, Refused> {
    let ours = mode.scheme();
    let why = match Exchange::parse(mode.tag(), message) {
        Ok(Exchange::Worker { address, .. }) => match WorkerAddress::from_bytes(address) {
            Ok(address) => return Ok(address),
            Err(problem) => format!("the address of this process's worker is not what it was: {problem}"),
        },
        Err(HelloError::Transport(tag)) if let Some(theirs) = Mode::of(tag) => {
            *mode = theirs;
            let theirs = theirs.scheme();
            format!("it is reached by `{ours}://`, not by `{theirs}://`")
        }
        Err(error @ HelloError::Version(_)) => error.to_string(),
        _ => HelloError::Form.to_string(),
    };
    Err((false, why))
}

impl Watched for Acceptor {
    fn ready(self: Arc<Self>, token: Token) {
        self.half_open.ready(token, &self.as_watched(), |socket, asking| {
            self.advance(socket, asking)
        });
    }

    fn due(self: Arc<Self>, token: Token) {
        self.half_open.due(token, &self.as_watched());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::Policy;
    use crate::observe::LogLimit;
    use crate::tests::logs::Log;
    use crate::transport::handshake::HANDSHAKE_TIMEOUT;

    /// A refusal is one line, and the source reads the reason.
    #[test]
    fn each_refusal_is_one_line() {
        let policy = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
        let watcher = Watcher::idle(std::process::id());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = Acceptor {
            half_open: HalfOpen::new(&watcher, listener.try_clone().unwrap().into(), HANDSHAKE_TIMEOUT),
            engine: Weak::new(),
            mode: Mode::Messages,
            connect: policy.connect.into(),
            server: None,
        };
        let _every_line = LogLimit::lift();
        for (sent, line, told) in [
            (
                &b"ifuncucx"[..],
                Some("the policy does not admit its address"),
                "admit 127.0.0.1",
            ),
            (
                &[TLS],
                Some("it asks for this target's key, which has none"),
                NO_KEYS_HERE,
            ),
            (&[0; 24], Some("it does not say what it is"), ""),
            // One that leaves is not worth a line.
            (&[], None, ""),
        ] {
            let mut source = TcpStream::connect(at).unwrap();
            let (socket, _) = listener.accept().unwrap();
            let socket = Watch::new(&watcher, socket.into());
            std::io::Write::write_all(&mut source, sent).unwrap();
            source.shutdown(std::net::Shutdown::Write).unwrap();
            let log = Log::new(tracing::Level::WARN);
            tracing::subscriber::with_default(log.clone(), || match sent {
                [Exchange::FIRST, ..] => acceptor.answer(socket, Asking::default()),
                _ => assert!(acceptor.advance(socket, Asking::default()).is_none()),
            });
            let lines = log.lines();
            assert_eq!(lines.len(), usize::from(line.is_some()), "{lines:?}");
            assert!(
                lines.iter().all(|logged| logged.contains(line.unwrap())),
                "{lines:?}"
            );
            let mut answer = Vec::new();
            let _ = source.read_to_end(&mut answer);
            match Exchange::parse(Mode::Messages.tag(), &answer) {
                Ok(Exchange::Refused(why)) => {
                    assert!(String::from_utf8_lossy(why).contains(told) && !told.is_empty());
                }
                other => assert!(told.is_empty() && answer.is_empty(), "{other:?}"),
            }
        }
    }
}
