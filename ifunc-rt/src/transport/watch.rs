//! The one background thread of a process that uses sockets of its own: it accepts and answers connections, tells of notices that come over them, and
//! detects when a peer is gone, so that other threads need no system call for that. It sleeps otherwise.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::os::{Epoll, EventFlags};

/// Stack of the thread: the deepest it goes is making a segment, a step of a TLS handshake, or UCX's progress.
const STACK: usize = if cfg!(any(feature = "tls", feature = "ucx")) {
    1 << 20
} else {
    256 << 10
};

/// Names a watched descriptor. No number is used twice within a process, and none is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(pub(super) u64);

/// What the watcher calls.
pub(crate) trait Watched: Send + Sync {
    /// An event of the descriptor `token` has happened. On the watcher's thread, so it must not block.
    fn ready(self: Arc<Self>, token: Token);

    /// The time of [`Watch::call_in`] has come. On the watcher's thread, so it must not block.
    fn due(self: Arc<Self>, _: Token) {}

    /// A peer woke the sleeping target.
    fn woken(&self) {}
}

/// The background thread's epoll instance and timers.
pub(crate) struct Watcher {
    epoll: Epoll,
    state: Mutex<State>,
    process: u32,
}

#[derive(Default)]
struct State {
    watched: HashMap<Token, Weak<dyn Watched>>,
    due: BTreeSet<(Instant, Token)>,
}

/// A descriptor that the watcher's thread watches until this is dropped. A call that has begun may still end then.
pub(crate) struct Watch {
    watcher: Arc<Watcher>,
    token: Token,
    fd: OwnedFd,
}

impl Watch {
    /// A descriptor that is not watched yet.
    pub(crate) fn new(watcher: &Arc<Watcher>, fd: OwnedFd) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            watcher: Arc::clone(watcher),
            token: Token(NEXT.fetch_add(1, Ordering::Relaxed)),
            fd,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Calls `watched.ready(token)` whenever `events` happen, from now on. Those that hold already count as happening.
    pub(crate) fn watch(&self, events: EventFlags, watched: Weak<dyn Watched>) -> io::Result<()> {
        let is_new = self.watcher.state().watched.insert(self.token, watched).is_none();
        let (epoll, token) = (&self.watcher.epoll, self.token.0);
        Ok(if is_new {
            epoll.add(self, token, events)
        } else {
            epoll.modify(self, token, events)
        }?)
    }

    /// Calls `due(token)` in a while. For calls from within `ready` and `due`: the thread is not woken for it.
    pub(crate) fn call_in(&self, delay: Duration) {
        let at = Instant::now() + delay;
        self.watcher.state().due.insert((at, self.token));
    }

    /// Whether the calling process is a forked child of the one that watches: see [`Watcher::is_forked`].
    pub(crate) fn is_forked(&self) -> bool {
        self.watcher.is_forked()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.watcher.epoll.remove(&*self);
            self.watcher.state().watched.remove(&self.token);
        }
    }
}

impl Watcher {
    /// This process's, begun if need be. A child that was forked without exec begins its own: threads do not
    /// survive a fork.
    pub(crate) fn of_this_process() -> io::Result<Arc<Self>> {
        static WATCHER: Mutex<Option<Arc<Watcher>>> = Mutex::new(None);
        let mut place = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(watcher) = &*place
            && watcher.process == process
        {
            return Ok(Arc::clone(watcher));
        }
        let watcher = Arc::new(Self {
            epoll: Epoll::new()?,
            state: Mutex::default(),
            process,
        });
        let run = Arc::clone(&watcher);
        std::thread::Builder::new()
            .name("ifunc-watch".into())
            .stack_size(STACK)
            .spawn(move || run.run())?;
        *place = Some(Arc::clone(&watcher));
        Ok(watcher)
    }

    /// One that no thread runs, of this process or as if of another one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn idle(process: u32) -> Arc<Self> {
        Arc::new(Self {
            epoll: Epoll::new().unwrap(),
            state: Mutex::default(),
            process,
        })
    }

    /// Whether the calling process is a forked child of the one that watches. It shares the epoll instances and the sockets,
    /// and finds locks as they were at the fork: it must leave them alone.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is watched as `token`, if it is still there.
    pub(crate) fn find(&self, token: Token) -> Option<Arc<dyn Watched>> {
        self.state().watched.get(&token)?.upgrade()
    }

    fn run(&self) {
        loop {
            let next = self.state().due.first().map(|(at, _)| *at);
            let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
            let ready = |token| {
                if let Some(watched) = self.find(Token(token)) {
                    contained(|| watched.ready(Token(token)));
                }
            };
            // It fails only for reasons that no instance of this process has.
            let _ = self.epoll.wait(timeout, ready);
            while let Some(token) = self.next_due() {
                if let Some(watched) = self.find(token) {
                    contained(|| watched.due(token));
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

/// Calls what a descriptor stands for. A panic in it, a log subscriber's for example, is not the end of the thread, and of all other sockets.
fn contained(call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        let _ = catch_unwind(|| {
            tracing::error!("the thread that watches sockets panicked, and goes on with the next one")
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::os::EventFd;

    /// Reports what the watcher calls.
    struct Reports(Mutex<mpsc::Sender<(Token, bool)>>);

    impl Watched for Reports {
        fn ready(self: Arc<Self>, token: Token) {
            let watch = CALLS.lock().unwrap();
            let watch = watch.as_ref().unwrap();
            assert_eq!(watch.token(), token);
            watch.call_in(Duration::from_millis(5));
            drop(watch.watch(EventFlags::empty(), Arc::downgrade(&self) as Weak<dyn Watched>));
            self.0.lock().unwrap().send((token, false)).unwrap();
        }

        fn due(self: Arc<Self>, token: Token) {
            self.0.lock().unwrap().send((token, true)).unwrap();
        }
    }

    /// The watch of the test, for the watcher's thread.
    static CALLS: Mutex<Option<Watch>> = Mutex::new(None);

    fn readable() -> OwnedFd {
        let event_fd = EventFd::new().unwrap();
        event_fd.wake();
        event_fd.as_fd().try_clone_to_owned().unwrap()
    }

    #[test]
    fn one_thread_calls_for_events_and_at_times() {
        let watcher = Watcher::of_this_process().unwrap();
        assert!(Arc::ptr_eq(&watcher, &Watcher::of_this_process().unwrap()));
        let (send, calls) = mpsc::channel();
        let reports: Arc<dyn Watched> = Arc::new(Reports(Mutex::new(send)));
        let watch = Watch::new(&watcher, readable());
        let token = watch.token();
        let mut place = CALLS.lock().unwrap();
        watch.watch(EventFlags::IN, Arc::downgrade(&reports)).unwrap();
        *place = Some(watch);
        drop(place);
        let next = || calls.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!([next(), next()], [(token, false), (token, true)]);
        // It is watched until it is dropped, and each time is told once.
        assert!(watcher.find(token).is_some());
        drop(CALLS.lock().unwrap().take());
        assert!(watcher.find(token).is_none() && !watcher.state().watched.contains_key(&token));
        assert!(calls.recv_timeout(Duration::from_millis(20)).is_err());
    }

    struct Panics;

    impl Watched for Panics {
        fn ready(self: Arc<Self>, _: Token) {
            panic!("as a subscriber may");
        }
    }

    #[test]
    fn a_panic_does_not_end_the_thread() {
        let watcher = Watcher::of_this_process().unwrap();
        let panics: Arc<dyn Watched> = Arc::new(Panics);
        let watch = Watch::new(&watcher, readable());
        let events = EventFlags::IN | EventFlags::ONESHOT;
        watch.watch(events, Arc::downgrade(&panics)).unwrap();
        // The thread still calls others, after it.
        for _ in 0..2 {
            let (send, calls) = mpsc::channel();
            let once: Arc<dyn Watched> = Arc::new(Once(send));
            let watch = Watch::new(&watcher, readable());
            watch.watch(events, Arc::downgrade(&once)).unwrap();
            calls.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }

    struct Once(mpsc::Sender<()>);

    impl Watched for Once {
        fn ready(self: Arc<Self>, _: Token) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn a_forked_child_leaves_what_it_shares_alone() {
        for (process, is_forked) in [(std::process::id(), false), (0, true)] {
            let watcher = Watcher::idle(process);
            let (send, _calls) = mpsc::channel();
            let reports: Arc<dyn Watched> = Arc::new(Reports(Mutex::new(send)));
            let fd = readable();
            let watch = Watch::new(&watcher, fd.try_clone().unwrap());
            watch.watch(EventFlags::IN, Arc::downgrade(&reports)).unwrap();
            assert_eq!((watcher.is_forked(), watch.is_forked()), (is_forked, is_forked));
            drop(watch);
            assert_eq!(watcher.state().watched.len(), usize::from(is_forked));
            // The descriptor is open: the instance has it unless it was taken out.
            let mut events = 0;
            watcher.epoll.wait(Some(Duration::ZERO), |_| events += 1).unwrap();
            assert_eq!(events, u32::from(is_forked));
        }
    }
}
