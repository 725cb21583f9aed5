//! A worker of UCX and its connections, and the one lock under which they are used.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::ucx::{Error, Features, Library, Serialized, Worker, code, raw};
use ifunc_abi::frame::BODY_ALIGN;

use super::arming::due_after;
use super::attached::{Attached, WorkerError, WorkerOptions};
use super::events::EventQueue;
use super::exit::{self, Busy};
use super::gather::{Polling, Unread};
use super::handshake::Mode;
use super::heap;
use super::lock::{Held, Lock};
use super::settings;
use super::table::{Closing, ConnectionId, State};
use crate::os::EventFd;

/// The active message's id.
pub(super) const MESSAGE: u16 = 1;
/// How long a side that closes a connection waits until its peer has all that it sent before.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How long endpoints are waited for that are being closed.
pub(super) const CLOSING: Duration = Duration::from_millis(500);
/// Calls of progress between two checks for silent peers, where no thread sleeps.
const WATCHED: u64 = 4096;
/// The longest sleep of a thread that waits for UCX.
const SLICE: Duration = Duration::from_millis(5);

/// A worker. The last handle of its connections, or its listener, ends it.
pub(crate) struct Engine {
    core: Lock<Core>,
    /// Readable when the worker has something to do, once it is armed. None of an application's worker.
    event_fd: Option<OwnedFd>,
    /// Calls of `ucp_worker_progress`. Written under the lock.
    polls: AtomicU64,
    /// The polls of a target's.
    pub(super) polling: Polling,
    /// `State::unread`, for threads that do not have the lock.
    pub(super) unread: Unread,
    /// Connections whose sockets have received something that no thread has read.
    notices_pending: NoticesPending,
    /// The id of the active messages that are received.
    am_id: u16,
    /// The worker is the application's.
    attached: Option<Attached>,
    /// For what calls it from the watching thread.
    pub(super) own: Weak<Engine>,
    /// Until everything else was dropped.
    ending: Option<Busy>,
}

/// Connections with notices to read.
#[derive(Default)]
struct NoticesPending {
    are_some: AtomicBool,
    ids: Mutex<Vec<ConnectionId>>,
}

impl NoticesPending {
    fn ids(&self) -> MutexGuard<'_, Vec<ConnectionId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An engine that the watching thread uses for a moment. Where its last owner has left meanwhile, its end, which waits for peers, has a thread
/// of its own: other sockets do not wait for it.
pub(super) struct Visited(Option<Arc<Engine>>);

impl Visited {
    /// `None`: the engine has ended.
    pub(super) fn of(engine: &Weak<Engine>) -> Option<Self> {
        engine.upgrade().map(|engine| Self(Some(engine)))
    }
}

impl Deref for Visited {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        self.0.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Visited {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take().and_then(Arc::into_inner) {
            // Without a thread it ends here.
            let _ = std::thread::Builder::new()
                .name("ifunc-close".into())
                .spawn(move || drop(engine));
        }
    }
}

/// What the lock protects. The worker is dropped first: it ends the use of the memory that `state` has.
pub(super) struct Core {
    pub(super) worker: Worker<EventQueue, Serialized>,
    pub(super) state: State,
}

impl Engine {
    /// On a worker of its own, for connections by way of `address`, or of any device.
    pub(super) fn new(
        ucx: Library,
        address: Option<IpAddr>,
        peer_timeout: Duration,
        mode: Mode,
    ) -> Result<Arc<Self>, Error> {
        heap::keep_freed_buffers();
        let _busy = Busy::begin().ok_or_else(|| Error {
            doing: "making a worker of UCX while the process ends",
            status: ucx.status(code::UCS_ERR_CANCELED),
        })?;
        let carried = match mode {
            Mode::Messages => Features::AM,
            Mode::Puts => Features::RMA,
        };
        let config = settings::config(ucx, address, peer_timeout, mode)?;
        let context = ucx.context(&config, carried | Features::WAKEUP)?;
        let context = context.am_alignment(BODY_ALIGN);
        let mut worker: Worker<EventQueue> = context.worker(EventQueue::new(None))?;
        // A duplicate, which stays open as long as the engine.
        let event_fd = worker.event_fd()?.try_clone_to_owned().map_err(|_| Error {
            doing: "duplicating UCX's descriptor to sleep on",
            status: ucx.status(code::UCS_ERR_IO_ERROR),
        })?;
        if mode == Mode::Messages {
            worker.receive(MESSAGE)?;
        }
        let mut state = State::new(mode);
        state.watch = settings::watch(peer_timeout);
        let unread = state.unread.clone();
        let engine = Arc::new_cyclic(|own| Self {
            core: Lock::new(Core { worker, state }),
            event_fd: Some(event_fd),
            polls: AtomicU64::new(0),
            polling: Polling::default(),
            unread,
            notices_pending: NoticesPending::default(),
            am_id: MESSAGE,
            attached: None,
            own: Weak::clone(own),
            ending: None,
        });
        exit::register(&engine);
        Ok(engine)
    }

    /// On a worker of the application's.
    ///
    /// # Safety
    /// The worker must be alive, of this process's UCX and of a context with `UCP_FEATURE_AM` (and `UCP_FEATURE_WAKEUP`, if
    /// that is said), and stay alive until [`detach`](Self::detach) has returned `Ok`. No other thread may use it
    /// while the engine is called, unless it is `UCS_THREAD_MODE_MULTI`.
    pub(crate) unsafe fn attach(
        ucx: Library,
        context: raw::ucp_context_h,
        worker: raw::ucp_worker_h,
        options: WorkerOptions,
    ) -> Result<Arc<Self>, WorkerError> {
        heap::keep_freed_buffers();
        let event_fd = Arc::new(EventFd::new().map_err(WorkerError::Os)?);
        // SAFETY: the caller's promise; the attributes are this worker's. One of one thread is used and dropped there: `lock` and `drop` check.
        // Guards of the handler live within calls of the engine, and no call of UCX is made under one.
        let (attributes, mut worker) = unsafe {
            let attributes = ucx.query(worker)?;
            let events = EventQueue::new(Some(Arc::clone(&event_fd)));
            (
                attributes,
                Worker::attach(ucx, context, worker, attributes, events),
            )
        };
        let attached = Attached::new(&worker, attributes, event_fd, options)?;
        worker.receive(options.am_id)?;
        let state = State::new(Mode::Messages);
        let unread = state.unread.clone();
        Ok(Arc::new_cyclic(|own| Self {
            core: Lock::new(Core { worker, state }),
            event_fd: None,
            polls: AtomicU64::new(0),
            polling: Polling::default(),
            unread,
            notices_pending: NoticesPending::default(),
            am_id: options.am_id,
            attached: Some(attached),
            own: Weak::clone(own),
            ending: None,
        }))
    }

    /// Dispatches what has happened.
    pub(crate) fn poll(&self) -> bool {
        self.lock().progress()
    }

    pub(super) fn attached(&self) -> Option<&Attached> {
        self.attached.as_ref()
    }

    /// As [`lock`](Self::lock); `None` where the worker may not be used.
    pub(super) fn lock_here(&self) -> Option<Locked<'_>> {
        let may = |attached: &Attached| attached.is_here() && !attached.is_in_callback();
        let here = self.attached.as_ref().is_none_or(may);
        here.then(|| self.lock())
    }

    /// Closes a connection or the acceptor: now, or with the next use of the worker where this thread may not use it.
    pub(super) fn close(&self, what: Closing) {
        match (self.lock_here(), &self.attached) {
            (Some(mut locked), _) => locked.run_close(what),
            (None, Some(attached)) => attached.defer(what),
            (None, None) => unreachable!("every thread may use a worker of our own"),
        }
    }

    /// # Panics
    /// On a thread that may not use the worker, and in a callback of the application's that runs in a call of ours.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        match &self.attached {
            None => self.locked(),
            Some(attached) => self.lock_attached(attached),
        }
    }

    #[inline]
    fn locked(&self) -> Locked<'_> {
        Locked {
            engine: self,
            // The state is consistent between any two statements that could panic.
            core: self.core.lock(),
        }
    }

    /// As [`lock`](Self::lock), of an application's worker.
    #[inline(never)]
    fn lock_attached(&self, attached: &Attached) -> Locked<'_> {
        // It would wait for itself.
        assert!(
            !attached.is_in_callback(),
            "a callback of the application's calls ifunc while ifunc makes progress on the same UCX worker; help: note what happened and call ifunc when progress has returned, or lend the worker with `progress(false)`"
        );
        let mut locked = self.locked();
        assert!(
            attached.is_here(),
            "a UCX worker of UCS_THREAD_MODE_SINGLE is used by another thread than its own; help: use what is made of it on that thread only, or make the worker UCS_THREAD_MODE_MULTI"
        );
        if attached.has_deferred() {
            locked.close_deferred(attached);
        }
        locked
    }

    /// As [`lock`](Self::lock), on a worker of our own. `None`: another thread has it, maybe for long: one that connects or closes.
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        debug_assert!(self.attached.is_none());
        let core = self.core.try_lock()?;
        Some(Locked { engine: self, core })
    }

    /// Lets the next dispatch read what a connection's socket has received.
    pub(super) fn set_notices_pending(&self, id: ConnectionId) {
        let mut ids = self.notices_pending.ids();
        if !ids.contains(&id) {
            ids.push(id);
        }
        self.notices_pending.are_some.store(true, Ordering::Release);
        drop(ids);
        // Either this thread gets the lock afterwards, or the one that had it sees this before it sleeps.
        fence(Ordering::SeqCst);
    }

    /// Whether there are notices to read.
    #[inline]
    pub(super) fn has_notices_pending(&self) -> bool {
        self.notices_pending.are_some.load(Ordering::Acquire)
    }

    /// As [`has_notices_pending`](Self::has_notices_pending), for a thread that is about to wait and has given the lock back.
    pub(super) fn has_late_notices(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_notices_pending()
    }

    pub(super) fn take_notices_pending(&self) -> Vec<ConnectionId> {
        let mut ids = self.notices_pending.ids();
        self.notices_pending.are_some.store(false, Ordering::Release);
        std::mem::take(&mut *ids)
    }

    /// How often UCX was progressed.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Acquire)
    }

    /// What a side sleeps on.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        match (&self.attached, &self.event_fd) {
            (Some(attached), _) => attached.bell(),
            (None, Some(event_fd)) => event_fd.as_fd(),
            (None, None) => unreachable!("a worker of our own has a descriptor"),
        }
    }
}

/// An engine that is this thread's for the moment.
pub(super) struct Locked<'a> {
    engine: &'a Engine,
    core: Held<'a, Core>,
}

impl Deref for Locked<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl<'a> Locked<'a> {
    pub(super) fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// What is said of a worker of the application's.
    pub(super) fn attached(&self) -> Option<&'a Attached> {
        self.engine.attached.as_ref()
    }
}

impl Locked<'_> {
    pub(super) fn run_close(&mut self, what: Closing) {
        match what {
            Closing::Connection(id) => self.close_connection(id),
            Closing::Acceptor => self.stop_listening(),
        }
    }

    /// The id of the active messages that are received.
    pub(super) fn am_id(&self) -> u16 {
        self.engine.am_id
    }

    /// Progresses UCX and dispatches the events; whether there were any. What was gathered is sent before.
    #[inline(always)]
    pub(super) fn progress(&mut self) -> bool {
        self.send_gathered();
        let polls = self.engine.polls() + 1;
        self.engine.polls.store(polls, Ordering::Release);
        if polls.is_multiple_of(WATCHED) {
            self.watch();
        }
        if self.state.mode == Mode::Puts && self.may_have_left() {
            self.leave_who_has_left();
        }
        let some = self.progress_worker();
        self.dispatch() || some
    }

    /// Ends connections whose peer was silent for too long with something under way. UCX then reports their failure.
    #[cold]
    #[inline(never)]
    pub(super) fn watch(&mut self) {
        let engine = self.engine;
        if let Some(watch) = &mut self.state.watch
            && watch.is_due()
        {
            watch.shut_down_silent(engine.bell());
        }
    }

    /// Progresses UCX; whether it did anything. The events wait in the queue.
    #[inline(always)]
    pub(super) fn progress_worker(&mut self) -> bool {
        let may = self.attached().is_none_or(|attached| attached.options.progress);
        if !may {
            return false;
        }
        let _in_progress = self.attached().map(Attached::enter_progress);
        let some = self.worker.progress();
        self.state.quiet_rounds_due = due_after(self.state.quiet_rounds_due, some);
        some
    }

    /// Progresses until `done` says so or `deadline`; whether it said so. Receives notices, too: this thread keeps the lock meanwhile.
    pub(super) fn progress_until(
        &mut self,
        deadline: Instant,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            if self.state.mode == Mode::Puts {
                self.attend_to_sockets();
            }
            let some = self.progress();
            if done(self) {
                return true;
            }
            // Also where there are always events: peers may see to that.
            let now = Instant::now();
            if now >= deadline || exit::is_over() {
                return false;
            }
            if some {
                continue;
            }
            self.arm();
            if done(self) {
                return true;
            }
            std::thread::sleep(self.backoff());
            self.wait_for_events(deadline.min(now + SLICE));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.attached.is_some() {
            if let Err(error) = self.detach() {
                tracing::error!(%error, "a UCX worker was not left: it keeps a callback, and its memory");
                self.core.get_mut().worker.abandon();
            }
            return;
        }
        self.ending = Busy::begin();
        if self.ending.is_none() {
            // UCX takes its state down.
            return self.core.get_mut().worker.abandon();
        }
        let mut locked = self.lock();
        locked.wait_for_closes();
        locked.wait_for_flushes();
        locked.progress_until(Instant::now() + CLOSING, |locked| locked.state.closing.is_empty());
        locked.forget_all();
        locked.flush_resting();
    }
}
