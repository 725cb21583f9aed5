//! A listening target. Connections are made on the watcher's thread.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ifunc_abi::hello::{Hello, HelloError};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::geteuid;

use super::barrier::Barriers;
use super::bound_name::BoundName;
use super::connection::{Connection, Role};
use super::directory;
use super::handshake::{Request, Welcome, peer_of, refuse};
use super::ready::LOOK_INTERVAL;
use super::segment::{Layout, Segment};
use super::wakeups::Wakeups;
use crate::observe::limited;
use crate::os::{EventFlags, raise_descriptor_limit_near};
use crate::policy::{CLOSED, Connect};
use crate::transport::handshake::{HANDSHAKE_TIMEOUT, MOST_WAITING, TOO_MANY_WAIT};
#[cfg(all(test, not(loom)))]
use crate::transport::loopback::tests::shuffled;
use crate::transport::watch::{Token, Watch, Watched, Watcher};
use crate::transport::{Key, Link, ListenConfig, ListenError, Listener, Peer, no_more_than};

/// Pause of accepting when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections whose hello has not arrived. The tests open as many.
pub(super) const MOST_HALF_OPEN: usize = if cfg!(test) { 128 } else { 256 };
/// Connections accepted in a row before the watcher serves other sockets.
const ACCEPTED_AT_ONCE: usize = 32;

/// Calls of `ready` between two polls of the sockets, which are a system call.
const SOCKET_POLL_INTERVAL: u32 = 64;

/// What the watcher's thread and the target share.
pub(in super::super) struct Acceptor {
    /// How addresses of its transport begin.
    scheme: &'static str,
    /// Where sources connect; `None` for a target of this process alone.
    socket: Option<Watch>,
    config: ListenConfig,
    /// The number of this node and 1; 0: it is no node of a group.
    node: AtomicU32,
    barriers: Barriers,
    watcher: Arc<Watcher>,
    wakeups: Arc<Wakeups>,
    state: Mutex<State>,
    /// Length of `State::links`.
    waiting: AtomicUsize,
    /// Connections of other users' sources, which do not get the ready bitmap.
    other_users: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Connections whose hello has not arrived.
    half_open: HashMap<Token, (Watch, Peer)>,
    /// Connections that the target has not accepted.
    links: VecDeque<Link>,
}

/// A listening target. `N` is its hold on the name.
struct ShmListener<N> {
    address: String,
    /// Calls of `ready`.
    polls: u32,
    /// A thread may sleep on the epoll instance. Only that thread takes wake-ups out: if another thread took one, the sleeper
    /// would not wake, and its announcement would be gone.
    armed: bool,
    acceptor: Arc<Acceptor>,
    /// Freed after the acceptor.
    _name: N,
}

/// Makes this process the target `name`.
pub(in super::super) fn listen(name: &str, config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let directory = directory::candidates().swap_remove(0);
    let (bound_name, socket) = BoundName::take(&directory, name, config.connect.get().has_other_users())?;
    let acceptor = Acceptor::new("shm", Some(socket), config)?;
    Ok(acceptor.into_listener(name, bound_name))
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> ListenError {
    let doing = doing.to_owned();
    move |source| ListenError::Io { doing, source }
}

/// Checks whether a peer of this user, as the kernel reports it, may connect.
///
/// # Errors
/// The reason for the peer, if it may not.
fn check_user(peer: u32, own: u32, connect: &Connect) -> Result<(), String> {
    if connect.admits_user(peer, own) {
        return Ok(());
    }
    Err(format!(
        "its policy admits processes of user {own} and those that it names, and this process is of user {peer}; \
         help: run both as the same user, or let the target's `Policy::connect_users` name user {peer}"
    ))
}

/// Refuses a connection, and logs that. `is_busy`: it may be taken a moment later.
fn turn_away(socket: &Watch, peer: &Peer, is_busy: bool, why: &str) {
    log_refusal(peer, why);
    refuse(socket, is_busy, why);
}

fn log_refusal(peer: &Peer, why: &str) {
    let (uid, pid) = (peer.uid, peer.pid);
    limited!(
        warn,
        refused = "connection",
        uid,
        pid,
        why,
        "refused a connection"
    );
}

impl Acceptor {
    /// An acceptor of the sources that connect to `socket`.
    pub(in super::super) fn new(
        scheme: &'static str,
        socket: Option<OwnedFd>,
        config: ListenConfig,
    ) -> Result<Arc<Self>, ListenError> {
        let watcher =
            Watcher::of_this_process().map_err(failed("starting the thread that watches connections"))?;
        let wakeups = Wakeups::new(Arc::clone(&watcher), config.max_connections)
            .map_err(failed("making the target's epoll instance and ready bitmap"))?;
        let acceptor = Arc::new(Self {
            scheme,
            socket: socket.map(|socket| Watch::new(&watcher, socket)),
            config,
            node: AtomicU32::new(0),
            barriers: Barriers::register(),
            watcher,
            wakeups: Arc::new(wakeups),
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
            other_users: AtomicUsize::new(0),
        });
        if let Some(socket) = &acceptor.socket {
            let watched = socket.watch(EventFlags::IN, acceptor.as_watched());
            watched.map_err(failed("watching the socket"))?;
        }
        Ok(acceptor)
    }

    /// The listener, which holds the name as long as it lives.
    pub(in super::super) fn into_listener(
        self: Arc<Self>,
        name: &str,
        held: impl Send + 'static,
    ) -> Box<dyn Listener> {
        Box::new(ShmListener {
            address: format!("{}:{name}", self.scheme),
            polls: 0,
            armed: false,
            acceptor: self,
            _name: held,
        })
    }

    /// What the target chose.
    #[cfg(all(test, not(loom)))]
    pub(in super::super) fn config(&self) -> &ListenConfig {
        &self.config
    }

    fn as_watched(self: &Arc<Self>) -> Weak<dyn Watched> {
        let this: Weak<Self> = Arc::downgrade(self);
        this
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts what has connected to the socket.
    fn accept_pending(self: &Arc<Self>, listening: &Watch) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match accept_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    raise_descriptor_limit_near(socket.as_fd());
                    self.authorize(socket);
                }
                Err(Errno::AGAIN) => return,
                // The source closed the socket before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // The socket stays readable: accept again after a pause, when descriptors may have been closed.
                    tracing::warn!(%error, "cannot accept a connection; trying again every {PAUSE:?}; help: `ulimit -n` says how many descriptors a process may have");
                    let _ = listening.watch(EventFlags::empty(), self.as_watched());
                    return listening.call_in(PAUSE);
                }
            }
        }
    }

    /// Checks whether the peer's user may connect, and waits for its hello.
    fn authorize(self: &Arc<Self>, socket: OwnedFd) {
        let Ok(peer) = peer_of(&socket) else { return };
        let (socket, uid) = (Watch::new(&self.watcher, socket), peer.uid.unwrap_or_default());
        let mut state = self.state();
        if let Err(why) = check_user(uid, geteuid().as_raw(), &self.config.connect.get()) {
            limited!(
                warn,
                refused = "connection",
                uid,
                pid = peer.pid,
                "refused a connection: the policy does not admit its user"
            );
            return refuse(&socket, false, &why);
        }
        let why = if state.half_open.len() >= MOST_HALF_OPEN {
            "too many connections are being made at this moment".to_owned()
        } else if let Err(error) = socket.watch(EventFlags::IN | EventFlags::RDHUP, self.as_watched()) {
            format!("it cannot watch the connection ({error})")
        } else {
            socket.call_in(HANDSHAKE_TIMEOUT);
            // The watcher calls back on this thread, after the insertion.
            state.half_open.insert(socket.token(), (socket, peer));
            return;
        };
        turn_away(&socket, &peer, true, &why);
    }

    /// Whether the calling process is a forked child of the one that listens.
    pub(in super::super) fn is_forked(&self) -> bool {
        self.watcher.is_forked()
    }

    /// Takes a source of this process, whose hello waits at the socket.
    pub(in super::super) fn admit(&self, socket: OwnedFd) {
        if let Ok(peer) = peer_of(&socket) {
            // If the hello was not sent, for want of memory, to drop the connection here closes it, and the source sees that.
            self.receive_hello(Watch::new(&self.watcher, socket), peer);
        }
    }

    /// Receives the hello of a connection. Returns the connection if its hello has not arrived.
    fn receive_hello(&self, socket: Watch, peer: Peer) -> Option<(Watch, Peer)> {
        let (is_busy, why) = match Request::receive(&socket) {
            Err(Errno::AGAIN | Errno::INTR) => return Some((socket, peer)),
            Ok(Ok(_)) if self.config.connect.is_closed() => (true, CLOSED.to_owned()),
            Ok(Ok(_)) if self.waiting.load(Ordering::Relaxed) >= MOST_WAITING => {
                (true, TOO_MANY_WAIT.to_owned())
            }
            Ok(Ok(request)) => {
                self.establish(socket, peer, request);
                return None;
            }
            Ok(Err(error @ HelloError::Version(_))) => (false, error.to_string()),
            // It is no source, and is not answered.
            Ok(Err(error)) => {
                log_refusal(&peer, &error.to_string());
                return None;
            }
            // The peer closed the socket.
            Err(_) => return None,
        };
        turn_away(&socket, &peer, is_busy, &why);
        None
    }

    /// The memory of a connection beside `others`.
    fn layout(&self, others: u32) -> Layout {
        let sizes = [self.config.to_target, self.config.to_source];
        Layout::new(match self.config.shares_slots {
            true => sizes.map(|size| size.beside(others)),
            false => sizes,
        })
    }

    /// Establishes the connection.
    fn establish(&self, socket: Watch, peer: Peer, request: Request) {
        // Another user could keep sources of this user waiting: see `ready`.
        let is_shown = peer.uid == Some(geteuid().as_raw());
        let Some(slot) = self.wakeups.allocate(is_shown) else {
            return turn_away(&socket, &peer, true, &no_more_than(self.wakeups.slots.most));
        };
        let layout = self.layout(slot.bit);
        let (segment, memory) = match Segment::create(layout) {
            Ok(made) => made,
            Err(error) => {
                let why = format!("it has no memory for the connection ({error})");
                return turn_away(&socket, &peer, true, &why);
            }
        };
        let hello = Hello {
            node: self.node.load(Ordering::Relaxed).checked_sub(1),
            ..self.config.hello
        };
        let welcome = Welcome {
            hello,
            barriers: self.barriers.agree(request.barriers),
            layout,
            bit: slot.bit,
        };
        if !is_shown {
            self.other_users.fetch_add(1, Ordering::Relaxed);
        }
        // If a step fails, dropping the connection notifies the source.
        let bitmap = is_shown.then(|| self.wakeups.slots.memory.as_fd());
        let made = Connection::new(self.scheme, segment, welcome.barriers, socket, Role::Target(slot))
            .and_then(|connection| {
                welcome.send(connection.socket(), &memory, bitmap)?;
                Ok(connection)
            });
        match made {
            Ok(connection) => {
                let link = connection.into_link(peer, request.hello);
                #[cfg(all(test, not(loom)))]
                let link = shuffled(link, self.config.shuffle, self.config.to_target);
                self.state().links.push_back(link);
                self.waiting.fetch_add(1, Ordering::Release);
                self.wakeups.wake();
            }
            Err(error) => limited!(warn, refused = "connection", %error, "a connection could not be made"),
        }
    }
}

impl Watched for Acceptor {
    fn ready(self: Arc<Self>, token: Token) {
        match &self.socket {
            Some(listening) if token == listening.token() => self.accept_pending(listening),
            _ => {
                let half_open = self.state().half_open.remove(&token);
                if let Some((socket, peer)) = half_open
                    && let Some(half_open) = self.receive_hello(socket, peer)
                {
                    self.state().half_open.insert(token, half_open);
                }
            }
        }
    }

    fn due(self: Arc<Self>, token: Token) {
        match &self.socket {
            Some(listening) if token == listening.token() => {
                let _ = listening.watch(EventFlags::IN, self.as_watched());
            }
            _ => {
                let overdue = self.state().half_open.remove(&token);
                if let Some((socket, peer)) = overdue {
                    turn_away(&socket, &peer, true, "no hello arrived in time");
                }
            }
        }
    }
}

impl<N: Send> Listener for ShmListener<N> {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn set_node(&mut self, node: Option<u32>) {
        let node = node.map_or(0, |node| node.wrapping_add(1));
        self.acceptor.node.store(node, Ordering::Relaxed);
    }

    fn accept(&mut self) -> Option<Link> {
        if !self.has_waiting() {
            return None;
        }
        self.acceptor.waiting.fetch_sub(1, Ordering::Relaxed);
        self.acceptor.state().links.pop_front()
    }

    fn has_waiting(&self) -> bool {
        self.acceptor.waiting.load(Ordering::Acquire) != 0
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.acceptor.wakeups.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        // Sources of other users send wake-ups over their sockets, whether the target sleeps or not, and so do those that do not
        // rely on the ready bitmap.
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(SOCKET_POLL_INTERVAL)
            && !self.armed
            && (self.acceptor.wakeups.is_shared() || self.acceptor.other_users.load(Ordering::Relaxed) > 0)
        {
            self.acceptor.wakeups.clear();
        }
        self.acceptor
            .wakeups
            .slots
            .take_ready(|bit| keys.push(Key::of(bit as u64)));
    }

    fn look_interval(&self) -> Option<Duration> {
        self.acceptor.wakeups.is_shared().then_some(LOOK_INTERVAL)
    }

    fn reads_slots(&self) -> bool {
        true
    }

    fn fence(&self) {
        self.acceptor.barriers.after_announcing();
    }

    fn arm(&mut self) {
        self.armed = true;
        self.acceptor.wakeups.clear();
        self.acceptor.wakeups.slots.announce(true);
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.acceptor.wakeups.slots.announce(false);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ifunc_abi::frame::Limits;

    use super::*;
    use crate::transport::shm::bound_name::{new_socket, socket_pair};
    use crate::transport::shm::handshake::receive_answer;
    use crate::transport::shm::ready::ReadyBitmap;
    use crate::transport::{ConnectConfig, RingSize};

    fn acceptor() -> Arc<Acceptor> {
        let size = RingSize {
            slots: 2,
            data: RingSize::MIN_DATA,
        };
        let limits = Limits {
            max_payload: 1 << 20,
            max_image: 1 << 20,
            max_answer: 1 << 20,
        };
        let config = ListenConfig {
            to_target: size,
            to_source: size,
            max_connections: 2,
            ..ListenConfig::new(limits)
        };
        Acceptor::new("loopback", None, config).unwrap()
    }

    /// Another user could clear the bits of this user's sources: it does not get the bitmap, and the target polls its socket.
    #[test]
    fn a_source_of_another_user_does_not_get_the_ready_bitmap() {
        let acceptor = acceptor();
        let mut listener = Arc::clone(&acceptor).into_listener("users", ());
        for (is_own, others) in [(true, 0), (false, 1)] {
            let (ours, theirs) = socket_pair().unwrap();
            let mut peer = peer_of(&ours).unwrap();
            peer.uid = peer.uid.map(|uid| uid + u32::from(!is_own));
            let request = Request {
                hello: ConnectConfig::default().hello,
                barriers: Barriers::Fences,
            };
            acceptor.establish(Watch::new(&acceptor.watcher, theirs), peer, request);
            let (welcome, [memory, bitmap]) = receive_answer(ours.as_fd(), "here", 1 << 20).unwrap().unwrap();
            assert_eq!((memory.is_some(), bitmap.is_some()), (true, is_own));
            assert_eq!(welcome.barriers, Barriers::Fences);
            assert_eq!(acceptor.other_users.load(Ordering::Relaxed), others);
            let mut link = listener.accept().unwrap();
            assert!(listener.accept().is_none());
            link.rx().park();
            let source = rustix::net::send(&ours, &[1], rustix::net::SendFlags::NOSIGNAL);
            assert_eq!(source, Ok(1));
            let mut keys = Vec::new();
            // A thread may sleep: it alone takes what wakes it.
            listener.arm();
            rustix::net::send(&ours, &[1], rustix::net::SendFlags::NOSIGNAL).unwrap();
            listener.ready(&mut keys);
            keys.clear();
            (0..2 * SOCKET_POLL_INTERVAL).for_each(|_| listener.ready(&mut keys));
            assert_eq!(keys, []);
            assert!(crate::os::wait_readable(
                listener.doorbell(),
                std::time::Instant::now()
            ));
            listener.disarm();
            (0..SOCKET_POLL_INTERVAL - 1).for_each(|_| listener.ready(&mut keys));
            listener.ready(&mut keys);
            // What a source of this user sends over its socket wakes a target that sleeps.
            let polled = if is_own { vec![] } else { vec![link.key.unwrap()] };
            assert_eq!(keys, polled);
            assert_eq!(listener.look_interval(), None);
            // Leaves its slot to the next.
            listener.arm();
            drop((link, ours));
        }
    }

    /// As where the process has no descriptors left for a while.
    #[test]
    fn an_acceptor_that_pauses_accepts_again_when_the_pause_is_over() {
        let address = format!("ifunc-test-pause-{}", std::process::id());
        let address = rustix::net::SocketAddrUnix::new_abstract_name(address.as_bytes()).unwrap();
        let socket = new_socket().unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        let acceptor = Acceptor::new("shm", Some(socket), acceptor().config.clone()).unwrap();
        let listening = acceptor.socket.as_ref().unwrap();
        listening
            .watch(EventFlags::empty(), acceptor.as_watched())
            .unwrap();
        let ours = new_socket().unwrap();
        rustix::net::connect(&ours, &address).unwrap();
        let request = Request {
            hello: ConnectConfig::default().hello,
            barriers: Barriers::Fences,
        };
        request.send(ours.as_fd());
        let now = std::time::Instant::now;
        assert!(!crate::os::wait_readable(
            ours.as_fd(),
            now() + Duration::from_millis(10)
        ));
        Watched::due(Arc::clone(&acceptor), listening.token());
        assert!(crate::os::wait_readable(
            ours.as_fd(),
            now() + Duration::from_secs(60)
        ));
        receive_answer(ours.as_fd(), "here", 1 << 20).unwrap().unwrap();
    }

    #[test]
    fn a_target_that_parks_links_passes_the_barrier() {
        let alone = std::thread::spawn(|| {
            let acceptor = acceptor();
            if acceptor.barriers == Barriers::Fences {
                eprintln!("SKIPPED: this kernel has no such barrier");
                return;
            }
            let listener = acceptor.into_listener("fence", ());
            if !crate::tests::refuse::refuse(libc::SYS_membarrier) {
                return;
            }
            let log = crate::tests::logs::Log::new(tracing::Level::WARN);
            tracing::subscriber::with_default(log.clone(), || listener.fence());
            assert_eq!(log.lines().len(), 1);
        });
        alone.join().unwrap();
    }

    #[test]
    fn links_that_share_the_ready_bitmap_are_looked_at_and_a_forked_child_is_no_target() {
        let mut acceptor = acceptor();
        let slots = [(); 2].map(|()| acceptor.wakeups.allocate(true).unwrap());
        let mut listener = Arc::clone(&acceptor).into_listener("shared", ());
        assert_eq!(listener.look_interval(), Some(LOOK_INTERVAL));
        assert!(acceptor.wakeups.allocate(true).is_none());
        let theirs = ReadyBitmap::adopt(acceptor.wakeups.slots.memory.as_fd()).unwrap();
        listener.arm();
        assert!(theirs.set(0), "it sleeps");
        listener.arm();
        listener.disarm();
        assert!(!theirs.set(1), "it polls");
        let mut keys = Vec::new();
        listener.ready(&mut keys);
        assert_eq!(keys, [Key::of(0), Key::of(1)]);
        drop((slots, listener));
        assert!(!acceptor.is_forked());
        Arc::get_mut(&mut acceptor).unwrap().watcher = Watcher::idle(0);
        assert!(acceptor.is_forked());
    }

    #[test]
    fn only_the_same_user_unless_others_are_allowed() {
        let own = Connect::default();
        assert_eq!(check_user(1000, 1000, &own), Ok(()));
        let named = crate::Policy::new().connect_users([1001]).connect;
        assert_eq!(check_user(1001, 1000, &named), Ok(()));
        // Nor the superuser: a target that wants its connections names it.
        for peer in [0, 1001] {
            let why = check_user(peer, 1000, &own).unwrap_err();
            assert!(why.contains("user 1000") && why.contains(&format!("user {peer}")));
        }
    }
}
