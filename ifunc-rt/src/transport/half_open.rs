//! A listening socket, and the connections to it whose handshake is not over: a bounded number at a time, each for a bounded time.
//! The [background thread](super::watch) serves them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::handshake::HANDSHAKE_TIMEOUT;
use super::socket::{peer_address, set_options};
use super::watch::{Token, Watch, Watched, Watcher};
use crate::observe::limited;
use crate::os::{EventFlags, raise_descriptor_limit_near};

/// Pause of accepting when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections whose handshake is not over. One more closes the oldest of them: an honest peer needs a few round trips.
pub(super) const MOST_HALF_OPEN: usize = if cfg!(test) { 64 } else { 256 };
/// Time in which a peer must complete its handshake.
pub(super) const TIMEOUT: Duration = if cfg!(test) {
    Duration::from_secs(1)
} else {
    HANDSHAKE_TIMEOUT
};
/// Connections accepted in a row before the watcher serves other sockets.
const ACCEPTED_AT_ONCE: usize = 32;

/// A listening socket and its half-open connections, each with its handshake.
pub(super) struct HalfOpen<T> {
    listening: Watch,
    watcher: Arc<Watcher>,
    /// Time after which a peer that vanished is given up.
    peer_timeout: Duration,
    places: Mutex<Places<T>>,
}

struct Places<T> {
    connections: HashMap<Token, (Watch, T)>,
    /// Their tokens, from the oldest on, and some of those that are no more.
    order: VecDeque<Token>,
}

impl<T: Default> HalfOpen<T> {
    /// Of a listening socket that does not block.
    pub(super) fn new(watcher: &Arc<Watcher>, listening: OwnedFd, peer_timeout: Duration) -> Self {
        Self {
            listening: Watch::new(watcher, listening),
            watcher: Arc::clone(watcher),
            peer_timeout,
            places: Mutex::new(Places {
                connections: HashMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    /// Begins to accept. From now on the acceptor hands its calls to [`ready`](Self::ready) and [`due`](Self::due).
    ///
    /// # Errors
    /// The system refuses to watch the socket.
    pub(super) fn start(&self, acceptor: Weak<dyn Watched>) -> io::Result<()> {
        self.listening.watch(EventFlags::IN, acceptor)
    }

    fn places(&self) -> MutexGuard<'_, Places<T>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of the socket `token`. `advance` takes what has arrived for a handshake, and returns the connection if more must arrive.
    pub(super) fn ready(
        &self,
        token: Token,
        acceptor: &Weak<dyn Watched>,
        advance: impl FnOnce(Watch, T) -> Option<(Watch, T)>,
    ) {
        if token == self.listening.token() {
            return self.accept_pending(acceptor);
        }
        let half_open = self.places().connections.remove(&token);
        let half_open = half_open.and_then(|(socket, handshake)| advance(socket, handshake));
        let mut places = self.places();
        if let Some(half_open) = half_open {
            places.connections.insert(token, half_open);
        }
        places.trim();
    }

    /// The time of the socket `token` is over.
    pub(super) fn due(&self, token: Token, acceptor: &Weak<dyn Watched>) {
        if token == self.listening.token() {
            let _ = self.listening.watch(EventFlags::IN, Weak::clone(acceptor));
            return;
        }
        let overdue = self.places().connections.remove(&token);
        self.places().trim();
        if let Some((socket, _)) = overdue {
            let from = peer_address(socket.as_fd()).ok();
            limited!(
                warn,
                refused = "connection",
                ?from,
                "closed a connection whose handshake was not over in time"
            );
        }
    }

    /// Accepts what has connected to the socket.
    fn accept_pending(&self, acceptor: &Weak<dyn Watched>) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match accept_with(&self.listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    raise_descriptor_limit_near(socket.as_fd());
                    self.open(socket, acceptor);
                }
                Err(Errno::AGAIN) => return,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    // The socket stays readable: accept again after a pause, when descriptors may have been closed.
                    limited!(warn, %error, "cannot accept a connection; trying again every {PAUSE:?}; help: `ulimit -n` says how many descriptors a process may have");
                    let _ = self.listening.watch(EventFlags::empty(), Weak::clone(acceptor));
                    return self.listening.call_in(PAUSE);
                }
                // The peer closed the socket, or the network failed, before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// Begins a handshake.
    fn open(&self, socket: OwnedFd, acceptor: &Weak<dyn Watched>) {
        if set_options(socket.as_fd(), self.peer_timeout).is_err() {
            return;
        }
        let socket = Watch::new(&self.watcher, socket);
        let token = socket.token();
        let events = EventFlags::IN | EventFlags::RDHUP;
        if socket.watch(events, Weak::clone(acceptor)).is_err() {
            return;
        }
        socket.call_in(TIMEOUT);
        let mut places = self.places();
        let is_full = places.connections.len() >= MOST_HALF_OPEN;
        let closed = is_full.then(|| places.take_oldest());
        places.connections.insert(token, (socket, T::default()));
        places.order.push_back(token);
        drop(places);
        if closed.is_some() {
            limited!(
                warn,
                refused = "connection",
                most = MOST_HALF_OPEN,
                "closed a connection before its handshake was over: too many are being made at this moment"
            );
        }
    }
}

impl<T> Places<T> {
    fn take_oldest(&mut self) -> Option<(Watch, T)> {
        while let Some(token) = self.order.pop_front() {
            if let Some(oldest) = self.connections.remove(&token) {
                return Some(oldest);
            }
        }
        None
    }

    /// Forgets the tokens of handshakes that are over.
    fn trim(&mut self) {
        while let Some(token) = self.order.front()
            && !self.connections.contains_key(token)
        {
            self.order.pop_front();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    /// One whose sockets no thread watches, and its address.
    fn idle() -> (HalfOpen<u8>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let watcher = Watcher::idle(std::process::id());
        let half_open = HalfOpen::new(&watcher, listener.into(), Duration::from_secs(5));
        (half_open, address)
    }

    struct Nothing;

    impl Watched for Nothing {
        fn ready(self: Arc<Self>, _: Token) {}
    }

    fn acceptor() -> Weak<dyn Watched> {
        Weak::<Nothing>::new()
    }

    #[test]
    fn the_oldest_of_too_many_half_open_connections_is_closed() {
        let (half_open, address) = idle();
        let mut clients = Vec::new();
        let mut connect = || {
            let before = half_open.places().order.back().copied();
            clients.push(TcpStream::connect(address).unwrap());
            half_open.accept_pending(&acceptor());
            let places = half_open.places();
            assert_ne!(places.order.back().copied(), before);
            (*places.order.back().unwrap(), places.connections.len())
        };
        let tokens: Vec<Token> = (1..=MOST_HALF_OPEN)
            .map(|count| {
                let (token, half_open) = connect();
                assert_eq!(half_open, count);
                token
            })
            .collect();
        let is_there = |token| half_open.places().connections.contains_key(token);
        assert!(tokens.iter().all(is_there));
        for (socket, _) in half_open.places().connections.values() {
            let flags = rustix::fs::fcntl_getfl(socket).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
            let flags = rustix::io::fcntl_getfd(socket).unwrap();
            assert_eq!(flags, rustix::io::FdFlags::CLOEXEC);
        }
        half_open.due(tokens[1], &acceptor());
        half_open.ready(tokens[2], &acceptor(), |socket, handshake| {
            Some((socket, handshake + 1))
        });
        assert!(
            !is_there(&tokens[1]) && is_there(&tokens[2]),
            "overdue, and more is to come"
        );
        assert_eq!(half_open.places().connections[&tokens[2]].1, 1);
        assert_eq!(connect().1, MOST_HALF_OPEN);
        assert!(is_there(&tokens[0]));
        assert_eq!(connect().1, MOST_HALF_OPEN);
        assert!(!is_there(&tokens[0]) && is_there(&tokens[2]));
        // One that is over is forgotten, and so are the tokens of all that came before and are no more.
        for token in &tokens[..tokens.len() / 2] {
            half_open.ready(*token, &acceptor(), |_, _| None);
        }
        for token in &tokens[tokens.len() / 2..] {
            half_open.due(*token, &acceptor());
        }
        let places = half_open.places();
        assert_eq!(places.connections.len(), 2);
        assert!(places.connections.contains_key(places.order.front().unwrap()));
    }
}
