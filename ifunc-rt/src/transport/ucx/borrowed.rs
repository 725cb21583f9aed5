//! A worker of the application's: what differs from one of our own.
//!
//! The application calls UCX for it, too, and our callbacks then run in its calls, maybe on another thread than the one
//! that has the engine's lock: the inbox has a lock of its own ([`Gate`](super::inbox::Gate)). What sleeps on such a worker
//! sleeps on three descriptors: UCX's, if its context has one; one that the callbacks ring; and a clock, for what neither
//! rings for.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use ucx_sys::*;

use super::engine::{Engine, LINGER, Locked, Refused};
use super::header::HEADER;
use super::table::ConnectionId;
use crate::transport::bell::Bell;

/// What the application says of its worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The id of our active messages.
    pub(crate) am_id: u16,
    /// Our calls may call `ucp_worker_progress`.
    pub(crate) progress: bool,
    /// The context has `UCP_FEATURE_WAKEUP`.
    pub(crate) wakeup: bool,
}

/// A worker that is not ours.
pub(super) struct Borrowed {
    pub(super) terms: Terms,
    /// The only thread that may use it.
    thread: Option<ThreadId>,
    /// All that a sleeper sleeps on.
    epoll: OwnedFd,
    pub(super) bell: Arc<Bell>,
    clock: OwnedFd,
    /// What ended where the worker could not be used.
    strays: Mutex<Vec<Stray>>,
    /// There are some.
    has_strays: AtomicBool,
}

thread_local! {
    /// The worker, by the address of its [`Borrowed`], on which this thread makes progress in a call of ours.
    static WORKING_ON: Cell<usize> = const { Cell::new(0) };
}

/// Until it is dropped, this thread makes progress in a call of ours.
pub(super) struct Working {
    before: usize,
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING_ON.set(self.before);
    }
}

/// Something that ended where its worker could not be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stray {
    Connection(ConnectionId),
    Door,
}

/// Why a worker cannot be borrowed.
#[derive(Debug)]
pub(crate) enum Unfit {
    Refused(Refused),
    /// The largest header of an active message that it sends.
    Header(usize),
    Os(rustix::io::Errno),
}

impl From<rustix::io::Errno> for Unfit {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Os(error)
    }
}

impl Borrowed {
    /// How often the worker is looked at, asleep, that has no descriptor.
    const WITHOUT_WAKEUP: Duration = Duration::from_millis(1);
    /// And one that has: UCX does not ring for the first message over a transport that no endpoint uses yet.
    const WITH_WAKEUP: Duration = Duration::from_millis(50);

    /// # Safety
    /// As for [`Engine::borrow`].
    pub(super) unsafe fn new(ucx: &Ucx, worker: ucp_worker_h, terms: Terms) -> Result<Self, Unfit> {
        let refused = |doing| move |status| Unfit::Refused(Refused { doing, status });
        let mut attr = ucp_worker_attr_t {
            field_mask: u64::from(UCP_WORKER_ATTR_FIELD_THREAD_MODE | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER),
            ..ucp_worker_attr_t::default()
        };
        // SAFETY: the worker is alive by the caller's promise; the fields of the mask are written.
        ucx.check(unsafe { ucx.ucp_worker_query(worker, &raw mut attr) })
            .map_err(refused("asking UCX about the worker"))?;
        if attr.max_am_header < HEADER {
            return Err(Unfit::Header(attr.max_am_header));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let clock = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let bell = Arc::new(Bell::new().map_err(|error| {
            Unfit::Os(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        })?);
        let add =
            |fd: BorrowedFd<'_>| epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        add(clock.as_fd())?;
        add((*bell).as_fd())?;
        if terms.wakeup && terms.progress {
            let mut efd = -1;
            // SAFETY: the worker is alive; its context has the feature by the caller's promise.
            ucx.check(unsafe { ucx.ucp_worker_get_efd(worker, &raw mut efd) })
                .map_err(refused("asking UCX for the descriptor of a worker (`wakeup` was said, which needs UCP_FEATURE_WAKEUP in its context)"))?;
            // SAFETY: the worker's own, and open as long as the worker lives.
            add(unsafe { BorrowedFd::borrow_raw(efd) })?;
        }
        Ok(Self {
            terms,
            thread: (attr.thread_mode == UCS_THREAD_MODE_SINGLE).then(|| std::thread::current().id()),
            epoll,
            bell,
            clock,
            strays: Mutex::default(),
            has_strays: AtomicBool::new(false),
        })
    }

    /// Whether this thread may use the worker.
    pub(super) fn is_here(&self) -> bool {
        self.thread
            .is_none_or(|thread| thread == std::thread::current().id())
    }

    /// This thread makes progress on the worker, under the engine's lock: callbacks of the application's may run in that.
    pub(super) fn work(&self) -> Working {
        let here = std::ptr::from_ref(self).addr();
        Working {
            before: WORKING_ON.replace(here),
        }
    }

    /// Whether this thread is in a callback that runs while the engine's lock is held, by itself.
    pub(super) fn is_in_callback(&self) -> bool {
        WORKING_ON.get() == std::ptr::from_ref(self).addr()
    }

    /// Whether every thread may.
    pub(super) fn is_anywhere(&self) -> bool {
        self.thread.is_none()
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Leaves something to whoever uses the worker next.
    pub(super) fn leave(&self, stray: Stray) {
        self.strays().push(stray);
        self.has_strays.store(true, Ordering::Release);
    }

    fn strays(&self) -> std::sync::MutexGuard<'_, Vec<Stray>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_strays(&self) -> Vec<Stray> {
        if !self.has_strays.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut strays = self.strays();
        self.has_strays.store(false, Ordering::Release);
        std::mem::take(&mut *strays)
    }

    fn wind(&self) {
        let after = if self.terms.wakeup {
            Self::WITH_WAKEUP
        } else {
            Self::WITHOUT_WAKEUP
        };
        let at = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        if let Err(error) = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &at) {
            tracing::error!(%error, "no clock to sleep by");
            self.bell.ring();
        }
    }
}

impl Locked<'_> {
    /// As [`arm`](Self::arm), where the worker is the application's.
    pub(super) fn arm_borrowed(&mut self, borrowed: &Borrowed) {
        borrowed.bell.silence();
        self.inbox().ring_for_the_next();
        if borrowed.terms.progress && !self.state.closed {
            borrowed.wind();
            if borrowed.terms.wakeup && self.try_arm().is_err() {
                borrowed.bell.ring();
            }
        }
        // What came before the callbacks were told to ring.
        if self.look() {
            borrowed.bell.ring();
        }
    }

    /// Ends everything and lets go of the worker, which is not used again.
    pub(super) fn let_go(&mut self, borrowed: &Borrowed) {
        if self.state.closed {
            return;
        }
        self.close_door();
        let all: Vec<_> = self.state.connections.keys().copied().collect();
        for id in all {
            let Some(connection) = self.state.connections.get(&id) else {
                continue;
            };
            connection.signs.gone.store(true, Ordering::Release);
            if connection.left.is_none() {
                self.leave(id);
            }
        }
        if borrowed.terms.progress {
            let until = Instant::now() + LINGER;
            self.work_until(until, |locked| locked.state.leaving == 0);
        }
        self.forget_all();
        if borrowed.terms.progress {
            let until = Instant::now() + LINGER;
            self.work_until(until, |locked| locked.state.parcels.is_empty());
        }
        self.unregister();
        self.look();
        self.state.closed = true;
    }
}

impl Engine {
    /// Lets go of a worker of the application's. `false`: another thread must.
    pub(super) fn let_go(&self) -> bool {
        let Some(borrowed) = self.borrowed() else {
            return true;
        };
        if !borrowed.is_here() {
            return false;
        }
        self.lock().let_go(borrowed);
        true
    }
}
