//! The target's side of making connections: a door that the watcher's thread keeps.

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
use super::bells::Bells;
use super::board::Roll;
use super::connection::{Connection, Place as OnBoard};
use super::directory;
use super::handshake::{Request, Welcome, send_refusal};
use super::layout::{Layout, Side};
use super::place::Place;
use super::policy::judge;
use super::segment::Segment;
use super::watch::{Token, Watched, Watcher};
use crate::transport::descriptors::make_room_behind;
use crate::transport::{Key, Link, ListenConfig, ListenError, Listener, Peer, no_more_than};

/// How long somebody may stand in the door and say nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the door stays shut when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// How many may stand in the door at a time.
const MOST_GUESTS: usize = 256;
/// How many connections the target may leave waiting.
const MOST_WAITING: usize = 1024;
/// How many are accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 32;

/// How often it is asked what is ready between two looks at the sockets, which are a system call.
const LOOKS_AT_SOCKETS: u32 = 64;

/// What the watcher's thread and the target share.
struct Door {
    socket: OwnedFd,
    token: Token,
    config: ListenConfig,
    layout: Layout,
    hello: Hello,
    barriers: Barriers,
    watcher: Arc<Watcher>,
    bells: Arc<Bells>,
    roll: Arc<Roll>,
    state: Mutex<State>,
    /// Length of `State::waiting`.
    count: AtomicUsize,
    /// Connections that were made with sources that do not get the board.
    strangers: AtomicUsize,
    /// This door, for what it registers.
    this: Weak<Door>,
}

#[derive(Default)]
struct State {
    /// Accepted, but they have not said what they are.
    guests: HashMap<Token, (OwnedFd, Peer)>,
    /// Connections that the target has not taken yet.
    waiting: VecDeque<Link>,
}

/// A listening target.
struct ShmListener {
    name: String,
    /// How often `ready` was asked.
    looks: u32,
    /// Somebody may sleep on the bell, who is the one to take rings out of it: a ring that another thread took would leave him
    /// asleep, and the announcement gone.
    armed: bool,
    door: Arc<Door>,
    /// Freed behind the door's end.
    _place: Place,
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
    let (place, socket) = Place::take(&directory, name, config.other_users)?;
    let watcher =
        Watcher::of_this_process().map_err(failed("starting the thread that watches connections"))?;
    let bells = Bells::new().map_err(failed("making the target's bell"))?;
    let roll = Roll::new(config.max_connections).map_err(failed("making the connections' board"))?;
    let door = Arc::new_cyclic(|this: &Weak<Door>| Door {
        socket,
        token: Token::next(),
        layout,
        hello: config.hello(),
        config,
        barriers: Barriers::register(),
        watcher,
        bells: Arc::new(bells),
        roll: Arc::new(roll),
        state: Mutex::default(),
        count: AtomicUsize::new(0),
        strangers: AtomicUsize::new(0),
        this: Weak::clone(this),
    });
    let listener = ShmListener {
        name: name.to_owned(),
        looks: 0,
        armed: false,
        door: Arc::clone(&door),
        _place: place,
    };
    door.watcher
        .watch(door.token, door.socket.as_fd(), EventFlags::IN, door.as_watched())
        .map_err(failed("watching the socket"))?;
    Ok(Box::new(listener))
}

impl Door {
    fn as_watched(&self) -> Weak<dyn Watched> {
        Weak::<Door>::clone(&self.this)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in who knocks.
    fn open(&self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    make_room_behind(socket.as_fd());
                    self.meet(socket);
                }
                Err(Errno::AGAIN) => return,
                // Gone while it waited.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // It stays readable: do not look before there is a chance that something was closed.
                    tracing::warn!(%error, "cannot accept a connection; trying again every {PAUSE:?}; help: `ulimit -n` says how many descriptors a process may have");
                    let _ = self.attend(EventFlags::empty());
                    self.watcher.call_in(PAUSE, self.token);
                    return;
                }
            }
        }
    }

    fn attend(&self, events: EventFlags) -> std::io::Result<()> {
        self.watcher
            .rewatch(self.token, self.socket.as_fd(), events, self.as_watched())
    }

    /// Judges somebody at the door.
    fn meet(&self, socket: OwnedFd) {
        let Ok(credentials) = socket_peercred(&socket) else {
            return;
        };
        let (uid, pid) = (credentials.uid.as_raw(), credentials.pid.as_raw_pid());
        let own = rustix::process::geteuid().as_raw();
        if let Err(why) = judge(uid, own, self.config.other_users) {
            tracing::warn!(uid, pid, "refused a connection of another user");
            return send_refusal(socket.as_fd(), false, &why);
        }
        let token = Token::next();
        let mut state = self.state();
        if state.guests.len() >= MOST_GUESTS {
            return send_refusal(
                socket.as_fd(),
                true,
                "too many connections are being made at this moment",
            );
        }
        // The one that calls back is this thread: it finds the guest in its place.
        match self.watcher.watch(
            token,
            socket.as_fd(),
            EventFlags::IN | EventFlags::RDHUP,
            self.as_watched(),
        ) {
            Ok(()) => {
                state.guests.insert(
                    token,
                    (
                        socket,
                        Peer {
                            uid: Some(uid),
                            pid: Some(pid),
                        },
                    ),
                );
                self.watcher.call_in(PATIENCE, token);
            }
            Err(error) => send_refusal(
                socket.as_fd(),
                true,
                &format!("it cannot watch the connection ({error})"),
            ),
        }
    }

    /// Hears what a guest says.
    fn hear(&self, token: Token) {
        let Some((socket, peer)) = self.state().guests.remove(&token) else {
            return;
        };
        let request = match Request::receive(socket.as_fd()) {
            Err(Errno::AGAIN | Errno::INTR) => {
                self.state().guests.insert(token, (socket, peer));
                return;
            }
            Ok(Ok(request)) => request,
            Ok(Err(error @ HelloError::Version(_))) => {
                self.watcher.forget(token, socket.as_fd());
                return send_refusal(socket.as_fd(), false, &error.to_string());
            }
            // It left, or speaks of something else.
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
        self.welcome(token, socket, peer, request);
    }

    /// Makes the connection.
    fn welcome(&self, token: Token, socket: OwnedFd, peer: Peer, request: Request) {
        let Some(bit) = self.roll.enter() else {
            self.watcher.forget(token, socket.as_fd());
            tracing::warn!(
                most = self.roll.most(),
                "refused a connection: there are as many as there may be"
            );
            return send_refusal(socket.as_fd(), true, &no_more_than(self.roll.most()));
        };
        let (segment, memory) = match Segment::create(self.layout) {
            Ok(made) => made,
            Err(error) => {
                self.watcher.forget(token, socket.as_fd());
                self.roll.leave(bit);
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
        // Others could keep sources of this user waiting: see `board`.
        let shown = peer.uid == Some(rustix::process::geteuid().as_raw());
        // Made first: should anything fail, its end tells the source.
        let connection = Connection::new(
            segment,
            Side::Target,
            barriers,
            socket,
            (Arc::clone(&self.watcher), token),
            OnBoard::Target(Arc::clone(&self.roll), bit, shown),
        );
        if !shown {
            self.strangers.fetch_add(1, Ordering::Relaxed);
        }
        let as_watched: Arc<dyn Watched> = Arc::<Connection>::clone(&connection);
        let end = EventFlags::RDHUP | EventFlags::ET;
        let made = connection
            .hang(&self.bells)
            .and_then(|()| welcome.send(connection.socket(), &memory, shown.then(|| self.roll.memory())))
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
        self.bells.ring();
    }
}

impl Watched for Door {
    fn ready(self: Arc<Self>, token: Token) {
        if token == self.token {
            self.open()
        } else {
            self.hear(token)
        }
    }

    fn due(self: Arc<Self>, token: Token) {
        if token == self.token {
            let _ = self.attend(EventFlags::IN);
        } else if let Some((socket, _)) = self.state().guests.remove(&token) {
            self.watcher.forget(token, socket.as_fd());
            send_refusal(socket.as_fd(), true, "it waited in vain to hear what connected");
        }
    }
}

impl Listener for ShmListener {
    fn address(&self) -> String {
        format!("shm:{}", self.name)
    }

    fn accept(&mut self) -> Option<Link> {
        if self.door.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.door.count.fetch_sub(1, Ordering::Relaxed);
        self.door.state().waiting.pop_front()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.door.bells.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        // Sources of other users ring over their sockets, whether the target sleeps or not.
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_AT_SOCKETS)
            && !self.armed
            && self.door.strangers.load(Ordering::Relaxed) > 0
        {
            self.door.bells.silence();
        }
        self.door.roll.take(|bit| keys.push(Key(bit as u64)));
    }

    fn fence(&self) {
        self.door.barriers.for_all();
    }

    fn arm(&mut self) {
        self.armed = true;
        self.door.bells.silence();
        self.door.roll.announce(true);
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.door.roll.announce(false);
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        self.door
            .watcher
            .forget(self.door.token, self.door.socket.as_fd());
        let State { guests, waiting } = std::mem::take(&mut *self.door.state());
        for (token, (socket, _)) in guests {
            self.door.watcher.forget(token, socket.as_fd());
        }
        // Their sources learn that nobody will come.
        drop(waiting);
    }
}
