//! How a target makes connections: TLS handshakes and hellos, on the background thread, of a bounded number of peers at a time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ifunc_abi::hello::{self, Hello, HelloError, Message};

use super::connection::{Connection, Doorbell};
use super::credentials::{Proof, Server};
use super::flow::Flow;
use super::greeting::{self, Incoming};
use super::link;
use super::server::Handshake;
use super::stream::{End, Stream};
use crate::keys::TlsKeys;
use crate::keys::certificate::names_of;
use crate::observe::limited;
use crate::policy::{CLOSED, Connect};
use crate::transport::half_open::HalfOpen;
use crate::transport::handshake::{MOST_WAITING, TOO_MANY_WAIT};
use crate::transport::socket::peer_address;
use crate::transport::watch::{Token, Watch, Watched, Watcher};
use crate::transport::{Certified, Key, Link, ListenConfig, Peer, no_more_than};

/// What the background thread and the target share.
pub(super) struct Acceptor {
    /// The connections whose hello has not arrived.
    half_open: HalfOpen<Greeting>,
    config: ListenConfig,
    /// This side's key, and those of the peers that it admits beside those of the policy.
    keys: TlsKeys,
    tls: Server,
    /// The number of this node and 1; 0: it is no node of a group.
    node: AtomicU32,
    pub(super) doorbell: Arc<Doorbell>,
    /// The number of the last connection.
    last: AtomicU64,
    /// Connections that the target has not accepted.
    links: Mutex<VecDeque<Link>>,
    /// Length of `links`.
    waiting: AtomicUsize,
}

/// What has arrived of a handshake and of the hello behind it.
#[derive(Default)]
struct Greeting {
    handshake: Handshake,
    incoming: Incoming,
}

impl Acceptor {
    pub(super) fn new(
        listening: OwnedFd,
        config: ListenConfig,
        keys: TlsKeys,
        tls: Server,
    ) -> io::Result<Arc<Self>> {
        let watcher = Watcher::of_this_process()?;
        let acceptor = Arc::new(Self {
            half_open: HalfOpen::new(&watcher, listening, config.peer_timeout),
            config,
            keys,
            tls,
            node: AtomicU32::new(0),
            doorbell: Arc::new(Doorbell::new()?),
            last: AtomicU64::new(0),
            links: Mutex::default(),
            waiting: AtomicUsize::new(0),
        });
        acceptor.half_open.start(acceptor.as_watched())?;
        Ok(acceptor)
    }

    pub(super) fn set_node(&self, node: Option<u32>) {
        let node = node.map_or(0, |node| node.wrapping_add(1));
        self.node.store(node, Ordering::Relaxed);
    }

    /// The next connection that is established.
    pub(super) fn accept(&self) -> Option<Link> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.links().pop_front()
    }

    fn as_watched(self: &Arc<Self>) -> Weak<dyn Watched> {
        let this: Weak<Self> = Arc::downgrade(self);
        this
    }

    fn links(&self) -> MutexGuard<'_, VecDeque<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has arrived of a handshake and of the hello behind it. Returns the connection if more must arrive.
    fn advance(&self, socket: Watch, mut greeting: Greeting) -> Option<(Watch, Greeting)> {
        let Greeting { handshake, incoming } = &mut greeting;
        let taken = handshake.advance(socket.as_fd(), &self.tls, |bytes| incoming.take(bytes));
        if let Err(end) = taken {
            if !matches!(end, End::Cut | End::Closed) {
                let from = peer_address(socket.as_fd()).ok();
                limited!(warn, refused = "connection", ?from, why = ?end, "closed a connection whose handshake failed");
            }
            return None;
        }
        let message = incoming.message().filter(|_| handshake.is_established());
        let Some(message) = message else {
            return (!handshake.has_backlog()).then_some((socket, greeting));
        };
        let message = message.to_vec();
        let (stream, proof) = greeting.handshake.into_established()?;
        self.greet(Greeted { socket, stream }, proof, &message);
        None
    }

    /// Answers a hello.
    fn greet(&self, mut greeted: Greeted, proof: Proof, message: &[u8]) {
        match self.check(&greeted, proof, message) {
            Ok((peer, hello)) => self.establish(greeted, peer, hello),
            Err((is_busy, why)) => greeted.refuse(is_busy, &why),
        }
    }

    /// Decides whether the peer connects: whether to try again later, and why not.
    fn check(
        &self,
        greeted: &Greeted,
        proof: Proof,
        message: &[u8],
    ) -> Result<(Peer, Hello), (bool, String)> {
        let from = peer_address(greeted.socket.as_fd()).ok();
        let peer = admit(&self.config.connect.get(), &self.keys, proof, from).map_err(|why| (false, why))?;
        let most = self.config.max_connections;
        let (is_busy, why) = match hello::parse(greeting::TAG, message) {
            Ok(Message::Hello(..)) if self.config.connect.is_closed() => (true, CLOSED.to_owned()),
            Ok(Message::Hello(..)) if self.waiting.load(Ordering::Relaxed) >= MOST_WAITING => {
                (true, TOO_MANY_WAIT.to_owned())
            }
            Ok(Message::Hello(..)) if self.doorbell.connections.load(Ordering::Relaxed) >= most => {
                (true, no_more_than(most))
            }
            Ok(Message::Hello(hello, [])) => return Ok((peer, hello)),
            Err(error @ HelloError::Version(_)) => (false, error.to_string()),
            _ => (false, HelloError::Form.to_string()),
        };
        limited!(warn, refused = "connection", key = peer.key.map(tracing::field::display), ?from, %why, "refused a connection");
        Err((is_busy, why))
    }

    /// Establishes a connection.
    fn establish(&self, Greeted { socket, mut stream }: Greeted, peer: Peer, hello: Hello) {
        let node = self.node.load(Ordering::Relaxed).checked_sub(1);
        stream.encrypt(&greeting::of_target(&self.config, node), &[]);
        let written = stream.flush(socket.as_fd());
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let flow = Flow::new(self.config.to_target, self.config.to_source);
        let doorbell = Arc::clone(&self.doorbell);
        let connection = match (written, stream.has_backlog()) {
            (Ok(()), false) => Connection::new(socket, stream, flow, doorbell, number, true),
            _ => return,
        };
        match connection {
            Ok(connection) => {
                let max_body = self.config.to_source.max_body();
                let link = link::new(&connection, hello, peer, Some(Key::of(number)), max_body);
                self.links().push_back(link);
                self.waiting.fetch_add(1, Ordering::Release);
                self.doorbell.wake();
            }
            Err(error) => limited!(warn, refused = "connection", %error, "a connection could not be made"),
        }
    }
}

/// Decides whether the holder of a key, or of a certificate, connects from an address. Logs a refusal.
///
/// # Errors
/// The reason for the peer.
pub(super) fn admit(
    connect: &Connect,
    keys: &TlsKeys,
    proof: Proof,
    from: Option<SocketAddr>,
) -> Result<Peer, String> {
    let Proof { key, chain } = proof;
    let mut name = connect.name_of_key(&key).map(str::to_owned);
    if connect.is_revoked(&key) {
        limited!(warn, refused = "connection", %key, name, ?from, "refused a connection: the policy revoked its key");
        return Err(format!("its policy revoked this process's key {key}"));
    }
    let mut certified = None;
    if !connect.admits_key(&key, keys) {
        let Some(chain) = chain else {
            limited!(warn, refused = "connection", %key, ?from, "refused a connection: the policy does not admit its key");
            return Err(format!(
                "its policy does not admit this process's key {key}; help: let the target's `Policy::connect_key` name it, or the peers of its keys (IFUNC_TLS_PEERS){}",
                if connect.has_certificates() {
                    "; or connect by a certificate: `TlsKeys::certificate`"
                } else {
                    ""
                }
            ));
        };
        match connect.admits_certificate(&chain) {
            Ok(known) => {
                name = Some(known.to_string());
                certified = Some(Arc::new(Certified { name: known, chain }));
            }
            Err(why) => {
                let names = names_of(&chain[0]).join(" ");
                limited!(warn, refused = "connection", %key, names, ?from, %why, "refused a connection: the policy does not admit its certificate");
                return Err(format!(
                    "its policy does not admit this process's certificate: {why}"
                ));
            }
        }
    }
    if !connect.admits_address(from.map(|from| from.ip())) {
        limited!(warn, refused = "connection", %key, name, ?from, "refused a connection: the policy does not admit its address");
        return Err(
            "its policy does not admit this host's address; help: `Policy::connect_from` on the target"
                .into(),
        );
    }
    Ok(Peer {
        uid: None,
        pid: None,
        key: Some(key),
        certified,
    })
}

/// A connection whose hello has arrived.
struct Greeted {
    socket: Watch,
    stream: Stream,
}

impl Greeted {
    /// Says that the target does not take the connection, and why.
    fn refuse(&mut self, is_busy: bool, why: &str) {
        let socket = self.socket.as_fd();
        self.stream.encrypt(&greeting::of_refusal(is_busy, why), &[]);
        self.stream.close();
        let _ = self.stream.flush(socket);
    }
}

impl Watched for Acceptor {
    fn ready(self: Arc<Self>, token: Token) {
        self.half_open
            .ready(token, &self.as_watched(), |socket, greeting| {
                self.advance(socket, greeting)
            });
    }

    fn due(self: Arc<Self>, token: Token) {
        self.half_open.due(token, &self.as_watched());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::keys::SecretKey;
    use crate::observe::LogLimit;
    use crate::tests::logs::Log;
    use crate::transport::tls::tests::authority::{Authority, Says};

    /// One whose sockets no thread watches, and its address.
    fn idle() -> (Arc<Acceptor>, Arc<Watcher>, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let watcher = Watcher::idle(std::process::id());
        let keys = TlsKeys::of_tests();
        let limits = ifunc_abi::frame::Limits {
            max_payload: 1 << 20,
            max_image: 1 << 20,
            max_answer: 1 << 20,
        };
        let config = ListenConfig {
            max_connections: 2,
            ..ListenConfig::new(limits)
        };
        let acceptor = Acceptor {
            half_open: HalfOpen::new(&watcher, listener.into(), config.peer_timeout),
            config,
            tls: Server::new(&keys).unwrap(),
            keys,
            node: AtomicU32::new(0),
            doorbell: Arc::new(Doorbell::new().unwrap()),
            last: AtomicU64::new(0),
            links: Mutex::default(),
            waiting: AtomicUsize::new(0),
        };
        (Arc::new(acceptor), watcher, address)
    }

    #[test]
    fn a_hello_is_checked_to_its_last_byte_and_places_are_counted() {
        use crate::transport::tls::credentials::{Client, server_name};

        let (acceptor, watcher, address) = idle();
        let client = Client::new(&TlsKeys::of_tests(), "here").unwrap();
        let tls = rustls::ClientConnection::new(client.config, server_name()).unwrap();
        let socket = std::net::TcpStream::connect(address).unwrap();
        let greeted = Greeted {
            socket: Watch::new(&watcher, socket.into()),
            stream: Stream::new(tls),
        };
        let check = |message: &[u8]| {
            let proof = Proof {
                key: TlsKeys::of_tests().key().public(),
                chain: None,
            };
            acceptor.check(&greeted, proof, message).map(|(_, hello)| hello)
        };
        let sent = crate::hello::invoking(7);
        let message = sent.encode(greeting::TAG);
        assert_eq!(check(&message), Ok(sent));
        let mut newer = message.to_vec();
        newer[8] += 1;
        let version = HelloError::Version(hello::WIRE_VERSION + 1).to_string();
        assert_eq!(check(&newer), Err((false, version)));
        let form = (false, HelloError::Form.to_string());
        assert_eq!(check(&[&message[..], &[0]].concat()), Err(form.clone()));
        assert_eq!(check(b""), Err(form));
        acceptor.waiting.store(MOST_WAITING - 1, Ordering::Relaxed);
        acceptor.doorbell.connections.store(1, Ordering::Relaxed);
        assert_eq!(check(&message), Ok(sent));
        acceptor.doorbell.connections.store(2, Ordering::Relaxed);
        assert_eq!(check(&message), Err((true, no_more_than(2))));
        acceptor.waiting.store(MOST_WAITING, Ordering::Relaxed);
        assert_eq!(check(&message), Err((true, TOO_MANY_WAIT.into())));
    }

    #[test]
    fn each_refusal_is_one_line() {
        let [own, peer, named, former, stranger] =
            [1, 2, 3, 4, 5].map(|seed| SecretKey::from_seed([seed; 32], "test"));
        let policy = Policy::new()
            .connect_key("ada", named.public())
            .connect_key("bob", former.public())
            .revoke(former.public());
        let nearby = policy.clone().connect_from(["10.0.0.0/8".parse().unwrap()]);
        let keys = TlsKeys::new(own).peer(peer.public());
        let from = Some("127.0.0.1:7".parse().unwrap());
        let _every_line = LogLimit::lift();
        let authority = Authority::new("acceptor", 21);
        let certified = nearby
            .clone()
            .connect_certificate(authority.trusted(), ["ada.example"])
            .unwrap();
        let of = |name| {
            authority
                .certificate(&stranger, &Says::names(&[name]))
                .chain()
                .to_vec()
        };
        for (name, line) in [
            ("bob.example", "does not admit its certificate"),
            ("ada.example", "admit its address"),
        ] {
            let log = Log::new(tracing::Level::WARN);
            let (key, chain) = (stranger.public(), Some(of(name)));
            let admitted = tracing::subscriber::with_default(log.clone(), || {
                admit(&certified.connect, &keys, Proof { key, chain }, from)
            });
            let lines = log.lines();
            assert!(admitted.is_err() && lines.len() == 1, "{lines:?}");
            assert!(lines[0].contains(line) && lines[0].contains(name), "{lines:?}");
        }
        for (policy, key, line) in [
            (&policy, &peer, None),
            (&policy, &named, None),
            (&policy, &former, Some("revoked its key")),
            (&policy, &stranger, Some("does not admit its key")),
            (&nearby, &named, Some("does not admit its address")),
        ] {
            let log = Log::new(tracing::Level::WARN);
            let admitted = tracing::subscriber::with_default(log.clone(), || {
                let (key, chain) = (key.public(), None);
                admit(&policy.connect, &keys, Proof { key, chain }, from)
            });
            let lines = log.lines();
            assert_eq!(
                (admitted.is_err(), lines.len()),
                (line.is_some(), usize::from(line.is_some()))
            );
            for logged in lines {
                assert!(
                    logged.contains(line.unwrap()) && logged.contains(&key.public().to_string()),
                    "{logged}"
                );
            }
        }
    }
}
