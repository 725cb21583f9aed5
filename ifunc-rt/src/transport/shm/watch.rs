//! The one background thread of a process that uses this transport: it accepts and answers connections, and
//! detects when a peer is gone, so that other threads need no system call for that. It sleeps otherwise.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// Events taken at a time.
const BATCH: usize = 64;
/// Stack of the thread: the deepest it goes is making a segment.
const STACK: usize = 256 << 10;

/// Names a watched file descriptor. No number is used twice within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token(u64);

impl Token {
    /// A new one.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number, never 0.
    pub(super) fn get(self) -> u64 {
        self.0
    }
}

/// What the watcher calls. On its own thread, so it must not block.
pub(super) trait Watched: Send + Sync {
    /// What was asked for has happened to the file descriptor `token`.
    fn ready(self: Arc<Self>, token: Token);

    /// The time that was asked for has come.
    fn due(self: Arc<Self>, token: Token) {
        let _ = token;
    }
}

/// The background thread's epoll instance and timers.
pub(super) struct Watcher {
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: HashMap<Token, Weak<dyn Watched>>,
    due: BTreeSet<(Instant, Token)>,
}

impl std::hash::Hash for Token {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Watcher {
    /// This process's, begun if need be. A child that was forked without exec begins its own: threads do not
    /// survive a fork.
    pub(super) fn of_this_process() -> io::Result<Arc<Self>> {
        static WATCHER: Mutex<Option<(u32, Arc<Watcher>)>> = Mutex::new(None);
        let mut place = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        let me = std::process::id();
        if let Some((process, watcher)) = &*place
            && *process == me
        {
            return Ok(Arc::clone(watcher));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watcher = Arc::new(Self {
            epoll,
            state: Mutex::default(),
        });
        let run = Arc::clone(&watcher);
        std::thread::Builder::new()
            .name("ifunc-watch".into())
            .stack_size(STACK)
            .spawn(move || run.run())?;
        *place = Some((me, Arc::clone(&watcher)));
        Ok(watcher)
    }

    /// Calls `watched.ready(token)` whenever `events` happen to `fd`, until `forget`.
    pub(super) fn watch(
        &self,
        token: Token,
        fd: BorrowedFd<'_>,
        events: epoll::EventFlags,
        watched: Weak<dyn Watched>,
    ) -> io::Result<()> {
        self.state().watched.insert(token, watched);
        if let Err(error) = epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token.0), events) {
            self.state().watched.remove(&token);
            return Err(error.into());
        }
        Ok(())
    }

    /// Other events, for another `watched`, of a file descriptor that is watched. What holds already counts
    /// as happening.
    pub(super) fn rewatch(
        &self,
        token: Token,
        fd: BorrowedFd<'_>,
        events: epoll::EventFlags,
        watched: Weak<dyn Watched>,
    ) -> io::Result<()> {
        self.state().watched.insert(token, watched);
        Ok(epoll::modify(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token.0),
            events,
        )?)
    }

    /// Undoes `watch`. A call that has begun may still end.
    pub(super) fn forget(&self, token: Token, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        let forgotten = self.state().watched.remove(&token);
        // Not under the lock: it may be the last reference to something that forgets.
        drop(forgotten);
    }

    /// Calls `due(token)` in a while. For calls from within `ready` and `due`: the thread is not woken for
    /// it.
    pub(super) fn call_in(&self, delay: Duration, token: Token) {
        self.state().due.insert((Instant::now() + delay, token));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, token: Token) -> Option<Arc<dyn Watched>> {
        let mut state = self.state();
        let watched = state.watched.get(&token)?.upgrade();
        if watched.is_none() {
            state.watched.remove(&token);
        }
        watched
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            let next = self
                .state()
                .due
                .first()
                .map(|(at, _)| at.saturating_duration_since(Instant::now()));
            let timeout = next.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            // It fails only for signals.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
            for event in events.drain(..) {
                let token = Token(event.data.u64());
                if let Some(watched) = self.find(token) {
                    watched.ready(token);
                }
            }
            while let Some(token) = self.next_due() {
                if let Some(watched) = self.find(token) {
                    watched.due(token);
                }
            }
        }
    }

    fn next_due(&self) -> Option<Token> {
        let mut state = self.state();
        let first = *state.due.first()?;
        (first.0 <= Instant::now()).then(|| {
            state.due.remove(&first);
            first.1
        })
    }
}
