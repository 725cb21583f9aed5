//! The target's side of making connections. It runs on the watcher's thread.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ifunc_abi::hello::{Hello, HelloError};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};

use super::barrier::Barriers;
use super::bound_name::BoundName;
use super::connection::{Connection, ReadyBit};
use super::directory;
use super::handshake::{Request, Welcome, send_refusal};
use super::layout::{Layout, Side};
use super::policy::check_user;
use super::ready::ConnectionSlots;
use super::segment::Segment;
use super::wakeups::Wakeups;
use super::watch::{Token, Watched, Watcher};
use crate::transport::descriptor_limit::raise_limit_near;
use crate::transport::{Key, Link, ListenConfig, ListenError, Listener, Peer, no_more_than};

/// Time in which a connected process must send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of accepting when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections whose hello has not arrived.
const MOST_HALF_OPEN: usize = 256;
/// Most connections that the target has not accepted.
const MOST_WAITING: usize = 1024;
/// Connections accepted in a row before the watcher serves other sockets.
const ACCEPTED_AT_ONCE: usize = 32;

/// Calls of `ready` between two polls of the sockets, which are a system call.
const SOCKET_POLL_INTERVAL: u32 = 64;

/// What the watcher's thread and the target share.
struct Acceptor {
    socket: OwnedFd,
    token: Token,
    config: ListenConfig,
    layout: Layout,
    hello: Hello,
    barriers: Barriers,
    watcher: Arc<Watcher>,
    wakeups: Arc<Wakeups>,
    slots: Arc<ConnectionSlots>,
    state: Mutex<State>,
    /// Length of `State::waiting`.
    count: AtomicUsize,
    /// Connections of other users' sources, which do not get the ready bitmap.
    other_users: AtomicUsize,
    /// This acceptor, for the watcher.
    this: Weak<Acceptor>,
}

#[derive(Default)]
struct State {
    /// Connections whose hello has not arrived.
    half_open: HashMap<Token, (OwnedFd, Peer)>,
    /// Connections that the target has not accepted.
    waiting: VecDeque<Link>,
}

/// A listening target.
struct ShmListener {
    name: String,
    /// Calls of `ready`.
    polls: u32,
    /// A thread may sleep on the epoll instance. Only that thread takes wake-ups out: if another thread took one, the sleeper
    /// would not wake, and its announcement would be gone.
    armed: bool,
    acceptor: Arc<Acceptor>,
    /// Freed after the acceptor.
    _name: BoundName,
}

/// Listens at `name`.
pub(super) fn listen(name: &str, config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let ring = config.to_target;
    let layout = Layout::new(config.to_target, config.to_source).ok_or(ListenError::Ring {
        slots: ring.slots,
        data: ring.data,
    })?;
    let failed = |doing: &str| {
        let doing = doing.to_owned();
        move |source: std::io::Error| ListenError::Io { doing, source }
    };
    let directory = directory::candidates().swap_remove(0);
    let (bound_name, socket) = BoundName::take(&directory, name, config.other_users)?;
    let watcher =
        Watcher::of_this_process().map_err(failed("starting the thread that watches connections"))?;
    let wakeups = Wakeups::new().map_err(failed("making the target's epoll instance"))?;
    let slots = ConnectionSlots::new(config.max_connections).map_err(failed("making the ready bitmap"))?;
    let acceptor = Arc::new_cyclic(|this: &Weak<Acceptor>| Acceptor {
        socket,
        token: Token::next(),
        layout,
        hello: config.hello(),
        config,
        barriers: Barriers::register(),
        watcher,
        wakeups: Arc::new(wakeups),
        slots: Arc::new(slots),
        state: Mutex::default(),
        count: AtomicUsize::new(0),
        other_users: AtomicUsize::new(0),
        this: Weak::clone(this),
    });
    let listener = ShmListener {
        name: name.to_owned(),
        polls: 0,
        armed: false,
        acceptor: Arc::clone(&acceptor),
        _name: bound_name,
    };
    acceptor
        .watcher
        .watch(
            acceptor.token,
            acceptor.socket.as_fd(),
            EventFlags::IN,
            acceptor.as_watched(),
        )
        .map_err(failed("watching the socket"))?;
    Ok(Box::new(listener))
}

impl Acceptor {
    fn as_watched(&self) -> Weak<dyn Watched> {
        Weak::<Acceptor>::clone(&self.this)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts what has connected.
    fn accept_pending(&self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    raise_limit_near(socket.as_fd());
                    self.authorize(socket);
                }
                Err(Errno::AGAIN) => return,
                // The source closed the socket before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // The socket stays readable: accept again after a pause, when descriptors may have been closed.
                    tracing::warn!(%error, "cannot accept a connection; trying again every {PAUSE:?}; help: `ulimit -n` says how many descriptors a process may have");
                    let _ = self.listen_for(EventFlags::empty());
                    self.watcher.call_in(PAUSE, self.token);
                    return;
                }
            }
        }
    }

    fn listen_for(&self, events: EventFlags) -> std::io::Result<()> {
        self.watcher
            .rewatch(self.token, self.socket.as_fd(), events, self.as_watched())
    }

    /// Checks whether the peer's user may connect, and waits for its hello.
    fn authorize(&self, socket: OwnedFd) {
        let Ok(credentials) = socket_peercred(&socket) else {
            return;
        };
        let (uid, pid) = (credentials.uid.as_raw(), credentials.pid.as_raw_pid());
        let own = rustix::process::geteuid().as_raw();
        if let Err(why) = check_user(uid, own, self.config.other_users) {
            tracing::warn!(uid, pid, "refused a connection of another user");
            return send_refusal(socket.as_fd(), false, &why);
        }
        let token = Token::next();
        let mut state = self.state();
        if state.half_open.len() >= MOST_HALF_OPEN {
            return send_refusal(
                socket.as_fd(),
                true,
                "too many connections are being made at this moment",
            );
        }
        // The watcher calls back on this thread, after the insertion.
        match self.watcher.watch(
            token,
            socket.as_fd(),
            EventFlags::IN | EventFlags::RDHUP,
            self.as_watched(),
        ) {
            Ok(()) => {
                state.half_open.insert(
                    token,
                    (
                        socket,
                        Peer {
                            uid: Some(uid),
                            pid: Some(pid),
                        },
                    ),
                );
                self.watcher.call_in(HELLO_TIMEOUT, token);
            }
            Err(error) => send_refusal(
                socket.as_fd(),
                true,
                &format!("it cannot watch the connection ({error})"),
            ),
        }
    }

    /// Receives the hello of a half-open connection.
    fn receive_hello(&self, token: Token) {
        let Some((socket, peer)) = self.state().half_open.remove(&token) else {
            return;
        };
        let request = match Request::receive(socket.as_fd()) {
            Err(Errno::AGAIN | Errno::INTR) => {
                self.state().half_open.insert(token, (socket, peer));
                return;
            }
            Ok(Ok(request)) => request,
            Ok(Err(error @ HelloError::Version(_))) => {
                self.watcher.forget(token, socket.as_fd());
                return send_refusal(socket.as_fd(), false, &error.to_string());
            }
            // The peer closed the socket, or sent something else.
            Ok(Err(_)) | Err(_) => return self.watcher.forget(token, socket.as_fd()),
        };
        if self.count.load(Ordering::Relaxed) >= MOST_WAITING {
            self.watcher.forget(token, socket.as_fd());
            return send_refusal(
                socket.as_fd(),
                true,
                "it does not take the connections that wait already",
            );
        }
        self.establish(token, socket, peer, request);
    }

    /// Establishes the connection.
    fn establish(&self, token: Token, socket: OwnedFd, peer: Peer, request: Request) {
        let Some(bit) = self.slots.allocate() else {
            self.watcher.forget(token, socket.as_fd());
            tracing::warn!(
                most = self.slots.most(),
                "refused a connection: there are as many as there may be"
            );
            return send_refusal(socket.as_fd(), true, &no_more_than(self.slots.most()));
        };
        let (segment, memory) = match Segment::create(self.layout) {
            Ok(made) => made,
            Err(error) => {
                self.watcher.forget(token, socket.as_fd());
                self.slots.free(bit);
                return send_refusal(
                    socket.as_fd(),
                    true,
                    &format!("it has no memory for the connection ({error})"),
                );
            }
        };
        let barriers = self.barriers.agree(request.barriers);
        let welcome = Welcome {
            hello: self.hello,
            barriers,
            layout: self.layout,
            bit,
        };
        // Another user could keep sources of this user waiting: see `ready`.
        let shown = peer.uid == Some(rustix::process::geteuid().as_raw());
        // Made first: if a step fails, dropping it notifies the source.
        let connection = Connection::new(
            segment,
            Side::Target,
            barriers,
            socket,
            (Arc::clone(&self.watcher), token),
            ReadyBit::Target(Arc::clone(&self.slots), bit, shown),
        );
        if !shown {
            self.other_users.fetch_add(1, Ordering::Relaxed);
        }
        let as_watched: Arc<dyn Watched> = Arc::<Connection>::clone(&connection);
        let end = EventFlags::RDHUP | EventFlags::ET;
        let made = connection
            .wake_through(&self.wakeups)
            .and_then(|()| welcome.send(connection.socket(), &memory, shown.then(|| self.slots.memory())))
            .map_err(std::io::Error::from)
            .and_then(|()| {
                self.watcher
                    .rewatch(token, connection.socket(), end, Arc::downgrade(&as_watched))
            });
        if let Err(error) = made {
            tracing::warn!(%error, "a connection could not be made");
            return;
        }
        self.state()
            .waiting
            .push_back(connection.into_link(peer, request.hello));
        self.count.fetch_add(1, Ordering::Release);
        self.wakeups.wake();
    }
}

impl Watched for Acceptor {
    fn ready(self: Arc<Self>, token: Token) {
        if token == self.token {
            self.accept_pending()
        } else {
            self.receive_hello(token)
        }
    }

    fn due(self: Arc<Self>, token: Token) {
        if token == self.token {
            let _ = self.listen_for(EventFlags::IN);
        } else if let Some((socket, _)) = self.state().half_open.remove(&token) {
            self.watcher.forget(token, socket.as_fd());
            send_refusal(socket.as_fd(), true, "no hello arrived in time");
        }
    }
}

impl Listener for ShmListener {
    fn address(&self) -> String {
        format!("shm:{}", self.name)
    }

    fn accept(&mut self) -> Option<Link> {
        if self.acceptor.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.acceptor.count.fetch_sub(1, Ordering::Relaxed);
        self.acceptor.state().waiting.pop_front()
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.acceptor.wakeups.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        // Sources of other users send wake-ups over their sockets, whether the target sleeps or not.
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(SOCKET_POLL_INTERVAL)
            && !self.armed
            && self.acceptor.other_users.load(Ordering::Relaxed) > 0
        {
            self.acceptor.wakeups.clear();
        }
        self.acceptor.slots.take_ready(|bit| keys.push(Key(bit as u64)));
    }

    fn fence(&self) {
        self.acceptor.barriers.for_all();
    }

    fn arm(&mut self) {
        self.armed = true;
        self.acceptor.wakeups.clear();
        self.acceptor.slots.announce(true);
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.acceptor.slots.announce(false);
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        self.acceptor
            .watcher
            .forget(self.acceptor.token, self.acceptor.socket.as_fd());
        let State { half_open, waiting } = std::mem::take(&mut *self.acceptor.state());
        for (token, (socket, _)) in half_open {
            self.acceptor.watcher.forget(token, socket.as_fd());
        }
        // Dropping them notifies their sources.
        drop(waiting);
    }
}
