//! A context and a worker of UCX's, and the one lock under which they are used.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ifunc_abi::frame::BODY_ALIGN;
use ucx_sys::*;

use super::borrowed::{Borrowed, Stray, Terms, Unfit};
use super::handshake::Way;
use super::inbox::{Inbox, on_message};
use super::lock::{Held, Lock};
use super::settings::Settings;
use super::table::{ConnectionId, State};
use crate::transport::bell::sleep_on;

/// The active message's id.
pub(super) const MESSAGE: u16 = 1;
/// How long whoever leaves waits for its peers to hear what it sent before.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How long endpoints are waited for that are being closed by force, which asks nobody.
const CLOSING: Duration = Duration::from_millis(500);
/// Looks between two at those that are silent, where nobody sleeps.
const WATCHED: u64 = 4096;
/// The longest sleep of somebody who waits for UCX.
const SLICE: Duration = Duration::from_millis(5);

/// What UCX refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) doing: &'static str,
    pub(crate) status: Status,
}

/// A context and a worker. The last handle of its connections, or its listener, ends it.
pub(super) struct Engine {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: ucp_worker_h,
    /// Readable when the worker has something to do, once it is armed.
    efd: RawFd,
    /// Of a box, and by its address alone: UCX has that, too, and a box that moves would be the only way to it.
    inbox: NonNull<Inbox>,
    state: Lock<State>,
    /// `State::looks`, for those who do not have the lock.
    looks: AtomicU64,
    /// The id of the active messages that come here.
    am_id: u16,
    /// Neither context nor worker are ours.
    borrowed: Option<Borrowed>,
}

// SAFETY: a worker of our own is used by one thread at a time, which is what it was made for (`UCS_THREAD_MODE_SERIALIZED`): under
// the lock of `state`, as is the inbox, which its callbacks fill. One of the
// application's is used as it promised to `borrow`, and its inbox has a gate. The descriptor may be waited for by anybody.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl Engine {
    pub(super) fn new(ucx: &'static Ucx, settings: &Settings, way: Way) -> Result<Arc<Self>, Refused> {
        let refused = |doing| move |status| Refused { doing, status };
        let rma = if way == Way::Puts { UCP_FEATURE_RMA } else { 0 };
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: u64::from(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | rma),
            ..ucp_params_t::default()
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: the parameters are as their mask says, the configuration is alive.
        let status = unsafe { ucx.ucp_init(&raw const params, settings.as_ptr(), &raw mut context) };
        ucx.check(status).map_err(refused("initialising UCX"))?;
        let mut engine = Self {
            ucx,
            context,
            worker: std::ptr::null_mut(),
            efd: -1,
            inbox: NonNull::from(Box::leak(Box::new(Inbox::new(ucx, None)))),
            state: Lock::new(State::new(way)),
            looks: AtomicU64::new(0),
            am_id: MESSAGE,
            borrowed: None,
        };
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT),
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            am_alignment: BODY_ALIGN,
            ..ucp_worker_params_t::default()
        };
        // SAFETY: as above; the context is alive.
        let status = unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut engine.worker) };
        ucx.check(status).map_err(refused("making a worker of UCX"))?;
        // SAFETY: the worker is alive and this thread's; its context has the feature `WAKEUP`.
        let status = unsafe { ucx.ucp_worker_get_efd(engine.worker, &raw mut engine.efd) };
        ucx.check(status)
            .map_err(refused("asking UCX for a descriptor to sleep on"))?;
        engine.state.get_mut().watch = settings.watch();
        engine.register(Some(on_message))?;
        Ok(Arc::new(engine))
    }

    /// Of a worker of the application's.
    ///
    /// # Safety
    /// The worker must be alive, of this process's UCX and of a context with `UCP_FEATURE_AM` (and `UCP_FEATURE_WAKEUP`, if
    /// that is said), and stay alive until [`let_go`](Self::let_go) has returned `true`. No other thread may use it
    /// while the engine is called, unless it is `UCS_THREAD_MODE_MULTI`.
    pub(super) unsafe fn borrow(
        ucx: &'static Ucx,
        context: ucp_context_h,
        worker: ucp_worker_h,
        terms: Terms,
    ) -> Result<Arc<Self>, Unfit> {
        // SAFETY: the caller's promise.
        let borrowed = unsafe { Borrowed::new(ucx, worker, terms)? };
        let bell = Arc::clone(&borrowed.bell);
        let mut engine = Self {
            ucx,
            context,
            worker,
            efd: -1,
            inbox: NonNull::from(Box::leak(Box::new(Inbox::new(ucx, Some(bell))))),
            state: Lock::new(State::new(Way::Messages)),
            looks: AtomicU64::new(0),
            am_id: terms.am_id,
            borrowed: Some(borrowed),
        };
        if let Err(refused) = engine.register(Some(on_message)) {
            // Nothing of it is known to UCX.
            engine.state.get_mut().closed = true;
            return Err(Unfit::Refused(refused));
        }
        Ok(Arc::new(engine))
    }

    fn register(&self, callback: ucp_am_recv_callback_t) -> Result<(), Refused> {
        let handler = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: self.am_id.into(),
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: callback,
            arg: self.inbox_ptr(),
        };
        // SAFETY: the worker is alive and this thread's; the inbox outlives it, or it is registered no more before.
        let status = unsafe {
            self.ucx
                .ucp_worker_set_am_recv_handler(self.worker, &raw const handler)
        };
        self.ucx.check(status).map_err(|status| Refused {
            doing: "registering the active message (which needs UCP_FEATURE_AM in the worker's context)",
            status,
        })
    }

    pub(super) fn borrowed(&self) -> Option<&Borrowed> {
        self.borrowed.as_ref()
    }

    /// As [`lock`](Self::lock); `None` where the worker may not be used.
    pub(super) fn lock_here(&self) -> Option<Locked<'_>> {
        let may = |borrowed: &Borrowed| borrowed.is_here() && !borrowed.is_in_callback();
        let here = self.borrowed.as_ref().is_none_or(may);
        here.then(|| self.lock())
    }

    /// A connection is not used any more.
    pub(super) fn leave(&self, id: ConnectionId) {
        match (self.lock_here(), &self.borrowed) {
            (Some(mut locked), _) => locked.leave(id),
            (None, Some(borrowed)) => borrowed.leave(Stray::Connection(id)),
            (None, None) => unreachable!("every thread may use a worker of our own"),
        }
    }

    /// A target does not listen any more.
    pub(super) fn close_door(&self) {
        match (self.lock_here(), &self.borrowed) {
            (Some(mut locked), _) => locked.close_door(),
            (None, Some(borrowed)) => borrowed.leave(Stray::Door),
            (None, None) => unreachable!("every thread may use a worker of our own"),
        }
    }

    /// # Panics
    /// On a thread that may not use the worker, and in a callback of the application's that runs in a call of ours.
    pub(super) fn lock(&self) -> Locked<'_> {
        // It would wait for itself.
        assert!(
            !self.borrowed.as_ref().is_some_and(Borrowed::is_in_callback),
            "a callback of the application's calls ifunc while ifunc makes progress on the same UCX worker; help: note what happened and call ifunc when progress has returned, or lend the worker with `progress(false)`"
        );
        let mut locked = Locked {
            engine: self,
            // What is kept is whole between any two statements that could panic.
            state: self.state.lock(),
        };
        if let Some(borrowed) = &self.borrowed {
            assert!(
                borrowed.is_here(),
                "a UCX worker of UCS_THREAD_MODE_SINGLE is used by another thread than its own; help: use what is made of it on that thread only, or make the worker UCS_THREAD_MODE_MULTI"
            );
            for stray in borrowed.take_strays() {
                match stray {
                    Stray::Connection(id) => locked.leave(id),
                    Stray::Door => locked.close_door(),
                }
            }
        }
        locked
    }

    /// How often UCX was let work, as far as this thread can know.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    /// What a side sleeps on.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        if let Some(borrowed) = &self.borrowed {
            return borrowed.bell();
        }
        // SAFETY: the worker's own, open as long as `self` has the worker.
        unsafe { BorrowedFd::borrow_raw(self.efd) }
    }

    fn inbox_ptr(&self) -> *mut c_void {
        self.inbox.as_ptr().cast()
    }
}

/// An engine that is this thread's for the moment.
pub(super) struct Locked<'a> {
    engine: &'a Engine,
    pub(super) state: Held<'a, State>,
}

impl<'a> Locked<'a> {
    /// Said of a worker of the application's.
    pub(super) fn borrowed(&self) -> Option<&'a Borrowed> {
        self.engine.borrowed.as_ref()
    }

    /// What UCX would say of a worker that is not used any more.
    pub(super) fn is_open(&self) -> Result<(), Status> {
        if self.state.closed {
            return Err(self.engine.ucx.status(UCS_ERR_CANCELED));
        }
        Ok(())
    }

    /// Has UCX forget the active message.
    pub(super) fn unregister(&mut self) {
        if let Err(Refused { doing, status }) = self.engine.register(None) {
            tracing::warn!(doing, %status, "a worker keeps a callback, and its memory");
            self.state.keeps_callback = true;
        }
    }
}

impl Locked<'_> {
    pub(super) fn ucx(&self) -> &'static Ucx {
        self.engine.ucx
    }

    pub(super) fn context(&self) -> ucp_context_h {
        self.engine.context
    }

    pub(super) fn worker(&self) -> ucp_worker_h {
        self.engine.worker
    }

    /// The id of the active messages that come here.
    pub(super) fn am_id(&self) -> u16 {
        self.engine.am_id
    }

    /// As UCX's callbacks get it.
    pub(super) fn inbox_ptr(&self) -> *mut c_void {
        self.engine.inbox_ptr()
    }

    pub(super) fn inbox(&self) -> &Inbox {
        // SAFETY: from a box that the engine frees when it is dropped; nobody has a mutable reference.
        unsafe { self.engine.inbox.as_ref() }
    }

    /// Lets UCX work, and looks at what happened; whether anything did.
    pub(super) fn progress(&mut self) -> bool {
        self.state.looks += 1;
        self.engine.looks.store(self.state.looks, Ordering::Release);
        if self.state.looks.is_multiple_of(WATCHED) {
            self.watch();
        }
        let some = self.turn();
        self.look() || some
    }

    /// Ends connections whose peer was silent for too long with something under way. UCX then says so.
    pub(super) fn watch(&mut self) {
        let engine = self.engine;
        if let Some(watch) = &mut self.state.watch
            && watch.is_due()
        {
            watch.hang_up(engine.bell());
        }
    }

    /// Lets UCX work; whether it did anything. What happened waits in the inbox.
    pub(super) fn turn(&mut self) -> bool {
        let may = self.borrowed().is_none_or(|borrowed| borrowed.terms.progress);
        if !may || self.state.closed {
            return false;
        }
        let _working = self.borrowed().map(Borrowed::work);
        // SAFETY: the worker is alive, and this thread's by the lock.
        unsafe { self.engine.ucx.ucp_worker_progress(self.engine.worker) > 0 }
    }

    /// Asks UCX to ring for what happens from now on. `UCS_ERR_BUSY`: something has happened.
    pub(super) fn arm_worker(&mut self) -> ucs_status_t {
        // SAFETY: as above.
        unsafe { self.engine.ucx.ucp_worker_arm(self.engine.worker) }
    }

    /// Rings.
    pub(super) fn ring(&mut self) -> Result<(), Status> {
        // SAFETY: as above.
        let status = unsafe { self.engine.ucx.ucp_worker_signal(self.engine.worker) };
        self.engine.ucx.check(status)
    }

    /// Works until `done` says so or `deadline`; whether it said so.
    pub(super) fn work_until(&mut self, deadline: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            let some = self.progress();
            if done(self) {
                return true;
            }
            // Also where there is always something: peers may see to that.
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            if some {
                continue;
            }
            self.arm();
            if done(self) {
                return true;
            }
            std::thread::sleep(self.nap());
            sleep_on(self.engine.bell(), deadline.min(now + SLICE));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.borrowed.is_some() {
            let gone = self.let_go();
            let state = self.state.get_mut();
            let parcels = std::mem::take(&mut state.parcels);
            if !gone {
                tracing::error!(
                    "a UCX worker of UCS_THREAD_MODE_SINGLE was left on another thread than its own: it keeps a callback, and its memory"
                );
                return;
            }
            if state.keeps_callback {
                return;
            }
            // SAFETY: made from a box by `borrow`, as all parcels are; nobody has the engine, and the worker's callbacks for
            // messages are gone.
            return unsafe { Inbox::abandon(self.inbox.as_ptr(), parcels.len()) };
        }
        if !self.worker.is_null() {
            let mut locked = self.lock();
            locked.say_goodbye();
            locked.work_until(Instant::now() + CLOSING, |locked| locked.state.closing == 0);
            locked.forget_all();
            let memory = locked.unearth();
            drop(locked);
            // SAFETY: alive, this thread's as nobody else has the engine, and used for the last time.
            unsafe { self.ucx.ucp_worker_destroy(self.worker) };
            let mut locked = self.lock();
            for memory in memory {
                locked.end_memory(memory);
            }
        }
        // SAFETY: alive, without a worker, and used for the last time.
        unsafe { self.ucx.ucp_cleanup(self.context) };
        let state = self.state.get_mut();
        for parcel in std::mem::take(&mut state.parcels) {
            // SAFETY: it was made from a box, and UCX, which had it, is gone.
            drop(unsafe { Box::from_raw(parcel) });
        }
        // SAFETY: made from a box by `new`; UCX, which had its address, is gone, and so are the parcels.
        drop(unsafe { Box::from_raw(self.inbox.as_ptr()) });
    }
}
