//! A worker of the application's: what differs from one of our own.
//!
//! The application calls UCX for it, too, and our callbacks then run in its calls, maybe on another thread than the one
//! that has the engine's lock: `ucx` keeps them apart then. A thread that sleeps on such a worker sleeps on three descriptors: UCX's,
//! if its context has one; one that the callbacks ring; and a timer, for what rings neither.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::ucx::{Attributes, Endpoint, EndpointId, Worker, raw};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::engine::{Engine, LINGER, Locked};
use super::events::EventQueue;
use super::header::HEADER;
use super::table::Closing;
use crate::driver::biased::this_thread;
use crate::os::{Epoll, EventFd, EventFlags};
use crate::transport::LinkError;

/// Between two attempts to leave a worker from whose buffers another thread's poll is reading.
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(50);

/// How ifunc uses a worker of the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct WorkerOptions {
    pub(super) am_id: u16,
    pub(super) progress: bool,
    pub(super) wakeup: bool,
}

impl WorkerOptions {
    /// With the active messages of this id, which no other part of the program uses on the worker, and which is the same on both sides.
    pub fn new(am_id: u16) -> Self {
        Self {
            am_id,
            progress: true,
            wakeup: false,
        }
    }

    /// Whether calls of ifunc call `ucp_worker_progress`. Default yes. See [the module](crate::ucx).
    pub fn progress(mut self, yes: bool) -> Self {
        self.progress = yes;
        self
    }

    /// Whether the context has `UCP_FEATURE_WAKEUP`, so that waits can sleep until UCX wakes them. Default no: they poll
    /// after 16 µs, then at intervals that double up to 1 ms. Even so they poll every 50 ms, because UCX does not wake them
    /// for the first message over a transport that no endpoint uses yet (unless `UCX_ADAPTIVE_PROGRESS=n`).
    pub fn wakeup(mut self, yes: bool) -> Self {
        self.wakeup = yes;
        self
    }
}

/// Why a worker cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no UCX that ifunc could find.
    #[error(transparent)]
    Library(#[from] ::ucx::LoadError),
    /// UCX refused something.
    #[error("{doing}: UCX says: {problem}")]
    Ucx {
        /// What was being done.
        doing: &'static str,
        /// What UCX said.
        problem: String,
    },
    /// Headers of active messages are too short.
    #[error(
        "the worker sends headers of at most {max_am_header} bytes with its active messages, and ifunc needs 40; help: make its context with UCP_FEATURE_AM; if it has that, let it use other transports (UCX_TLS)"
    )]
    Header {
        /// Bytes that it can send.
        max_am_header: usize,
    },
    /// The kernel refused a descriptor.
    #[error("making what waits on the worker sleep on: {0}")]
    Os(#[source] io::Error),
    /// A worker of `UCS_THREAD_MODE_SINGLE`, on another thread than its own.
    #[error("the worker is of UCS_THREAD_MODE_SINGLE and belongs to another thread; help: close it there")]
    OtherThread,
    /// A poll reads a message from a buffer of the worker's: the call came from a function that the poll runs, or from another thread.
    #[error(
        "a poll reads a message from a buffer of the worker's; help: close it when the poll has returned"
    )]
    InUse,
}

impl From<::ucx::Error> for WorkerError {
    fn from(::ucx::Error { doing, status }: ::ucx::Error) -> Self {
        Self::Ucx {
            doing,
            problem: status.to_string(),
        }
    }
}

impl From<rustix::io::Errno> for WorkerError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Os(error.into())
    }
}

/// What differs where the worker is the application's.
pub(super) struct Attached {
    pub(super) options: WorkerOptions,
    /// The only thread that may use it. Once that has ended, another one may be taken for it: nothing else uses the worker then.
    thread: Option<usize>,
    /// All that a waiting thread sleeps on.
    epoll: Epoll,
    pub(super) event_fd: Arc<EventFd>,
    timer: OwnedFd,
    /// What was dropped where the worker could not be used.
    deferred: Mutex<Vec<Closing>>,
    has_deferred: AtomicBool,
}

thread_local! {
    /// The worker, by the address of its [`Attached`], on which this thread makes progress in a call of ours.
    static IN_PROGRESS_OF: Cell<usize> = const { Cell::new(0) };
}

/// Until it is dropped, this thread makes progress in a call of ours.
pub(super) struct InProgress {
    before: usize,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        IN_PROGRESS_OF.set(self.before);
    }
}

impl Attached {
    /// How long a thread sleeps at most on a worker that has no descriptor, where something has come just before. Each sleep that ends for
    /// nothing is followed by one that is twice as long.
    const SHORTEST: Duration = Duration::from_micros(16);
    /// The longest of these.
    const WITHOUT_WAKEUP: Duration = Duration::from_millis(1);
    /// And on one that has: UCX does not wake for the first message over a transport that no endpoint uses yet.
    const WITH_WAKEUP: Duration = Duration::from_millis(50);

    pub(super) fn new(
        worker: &Worker<EventQueue>,
        attributes: Attributes,
        event_fd: Arc<EventFd>,
        options: WorkerOptions,
    ) -> Result<Self, WorkerError> {
        let max_am_header = attributes.max_am_header;
        if max_am_header < HEADER {
            return Err(WorkerError::Header { max_am_header });
        }
        let epoll = Epoll::new()?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let add = |fd: BorrowedFd<'_>| epoll.add(fd, 0, EventFlags::IN);
        add(timer.as_fd())?;
        add((*event_fd).as_fd())?;
        if options.wakeup && options.progress {
            add(worker.event_fd()?)?;
        }
        Ok(Self {
            options,
            thread: attributes.is_single_threaded.then(this_thread),
            epoll,
            event_fd,
            timer,
            deferred: Mutex::default(),
            has_deferred: AtomicBool::new(false),
        })
    }

    /// Whether this thread may use the worker.
    pub(super) fn is_here(&self) -> bool {
        self.thread.is_none_or(|thread| thread == this_thread())
    }

    /// This thread makes progress on the worker, under the engine's lock: callbacks of the application's may run in that.
    pub(super) fn enter_progress(&self) -> InProgress {
        let here = std::ptr::from_ref(self).addr();
        InProgress {
            before: IN_PROGRESS_OF.replace(here),
        }
    }

    /// Whether this thread is in a callback that runs while the engine's lock is held, by itself.
    pub(super) fn is_in_callback(&self) -> bool {
        IN_PROGRESS_OF.get() == std::ptr::from_ref(self).addr()
    }

    /// Whether every thread may.
    pub(super) fn is_anywhere(&self) -> bool {
        self.thread.is_none()
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Defers a drop to the next use of the worker.
    pub(super) fn defer(&self, what: Closing) {
        self.deferred().push(what);
        self.has_deferred.store(true, Ordering::Release);
    }

    fn deferred(&self) -> std::sync::MutexGuard<'_, Vec<Closing>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_deferred(&self) -> bool {
        self.has_deferred.load(Ordering::Acquire)
    }

    fn take_deferred(&self) -> Vec<Closing> {
        let mut deferred = self.deferred();
        self.has_deferred.store(false, Ordering::Release);
        std::mem::take(&mut *deferred)
    }

    /// Sets the timer, where something came `sleeps` sleeps ago.
    fn set_timer(&self, sleeps: u32) {
        let after = match self.options.wakeup {
            true => Self::WITH_WAKEUP,
            false => (Self::SHORTEST * (1 << sleeps.min(8))).min(Self::WITHOUT_WAKEUP),
        };
        let [it_interval, it_value] = [Duration::ZERO, after].map(|time| Timespec {
            tv_sec: 0,
            tv_nsec: time.subsec_nanos().into(),
        });
        let at = Itimerspec {
            it_interval,
            it_value,
        };
        if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at) {
            tracing::error!(%error, "no timer to sleep by");
            self.event_fd.wake();
        }
    }
}

impl Locked<'_> {
    /// As [`arm`](Self::arm), where the worker is the application's.
    pub(super) fn arm_attached(&mut self, attached: &Attached) {
        attached.event_fd.clear();
        self.worker.handler().arm();
        if attached.options.progress && !self.state.closed {
            attached.set_timer(self.state.sleeps);
            self.state.sleeps = self.state.sleeps.saturating_add(1);
            // Where UCX moves a body, the next piece does not wait for the timer.
            let goes_on = match attached.options.wakeup {
                true => self.try_arm().is_err(),
                false => self.progress(),
            };
            if goes_on {
                attached.event_fd.wake();
            }
        }
        // What came before the event queue was armed.
        if self.dispatch() {
            attached.event_fd.wake();
        }
    }

    /// Closes what was dropped where the worker could not be used.
    #[cold]
    pub(super) fn close_deferred(&mut self, attached: &Attached) {
        for what in attached.take_deferred() {
            self.run_close(what);
        }
    }

    /// Closes everything and leaves the worker, which is not used again.
    fn detach(&mut self, attached: &Attached) {
        if self.state.closed {
            return;
        }
        self.stop_listening();
        let all = self.state.connections.ids();
        for id in all {
            let Some(connection) = self.state.connections.get(&id) else {
                continue;
            };
            connection.signs.set_gone();
            if !connection.closed {
                self.close_connection(id);
            }
        }
        if attached.options.progress {
            let until = Instant::now() + LINGER;
            self.progress_until(until, |locked| locked.state.timed == 0);
        }
        self.forget_all();
        if attached.options.progress {
            let until = Instant::now() + LINGER;
            self.progress_until(until, |locked| locked.worker.under_way() == 0);
        }
        // Until here messages may come in calls of UCX on other threads; their buffers are given back while the worker is here.
        self.worker.take_handlers_back();
        self.dispatch();
        if !self.worker.detach() {
            tracing::warn!("a UCX worker keeps a callback of ifunc's, and its memory");
        }
        self.dispatch();
        self.state.closed = true;
    }

    /// The application says that the peer of one of its endpoints is gone; it closes the endpoint itself.
    fn peer_gone(&mut self, endpoint: EndpointId) {
        self.dispatch();
        self.state.lost.insert(endpoint);
        let mut over = Vec::new();
        for (id, connection) in self.state.connections.iter_mut() {
            let is_its = |of: &mut Endpoint| !of.is_owned() && of.id() == endpoint;
            if connection.endpoint.take_if(is_its).is_some() {
                connection.end(LinkError::Closed);
                over.push(id);
            }
        }
        for id in over {
            self.state.notify(id);
        }
    }
}

impl Engine {
    /// The application knows that the peer of an endpoint is gone.
    pub(crate) fn peer_gone(&self, ep: raw::ucp_ep_h) {
        self.lock().peer_gone(EndpointId::of_raw(ep));
    }

    /// Leaves a worker of the application's.
    ///
    /// # Errors
    /// [`WorkerError::OtherThread`] where another thread must. [`WorkerError::InUse`] where a poll is reading a body in a buffer of UCX's: at
    /// once if it is this thread's, otherwise after [`LINGER`]. Nothing was done.
    pub(crate) fn detach(&self) -> Result<(), WorkerError> {
        let Some(attached) = self.attached() else {
            return Ok(());
        };
        if !attached.is_here() {
            return Err(WorkerError::OtherThread);
        }
        let until = Instant::now() + LINGER;
        loop {
            let mut locked = self.lock();
            if locked.state.being_read == 0 {
                locked.detach(attached);
                return Ok(());
            }
            if locked.state.reader == this_thread() || Instant::now() >= until {
                return Err(WorkerError::InUse);
            }
            drop(locked);
            // Another thread's poll ends soon, unless it runs a function that does not.
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
    }
}
