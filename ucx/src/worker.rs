//! Workers: the token of the thread that holds one, and progress.
//!
//! An application's worker is [attached](Worker::attach): the application's calls of UCX run this crate's callbacks as well. Where that may be
//! another thread than the one that has the token, a gate keeps handler and callbacks apart. When such a worker is left, operations may be
//! under way: their buffers, and the state that callbacks use, live until the last of them has ended.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ucx_sys::{
    Status, UCP_AM_FLAG_WHOLE_MSG, UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB,
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS, UCP_AM_HANDLER_PARAM_FIELD_ID, UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER,
    UCP_WORKER_ATTR_FIELD_THREAD_MODE, UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
    UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_ERR_BUSY, UCS_ERR_IO_ERROR, UCS_OK, UCS_THREAD_MODE_MULTI,
    UCS_THREAD_MODE_SERIALIZED, UCS_THREAD_MODE_SINGLE, ucp_am_handler_param_t, ucp_am_recv_callback_t,
    ucp_worker_attr_t, ucp_worker_params_t, ucs_thread_mode_t,
};

use crate::callbacks::on_message;
use crate::handler::{Handler, HandlerGuard};
use crate::inner::{Inner, Owner, Registration};
use crate::library::{Error, Library, check};
use crate::operation::{Operations, sealed};
use crate::raw;
use crate::shared::Shared;

/// How the threads of a program use a worker.
pub trait Mode: sealed::Mode {}

impl<M: sealed::Mode> Mode for M {}

/// One thread at a time: the worker may be sent to another thread.
#[derive(Debug)]
pub enum Serialized {}
/// The thread that made it, alone.
#[derive(Debug)]
pub struct Single(PhantomData<*mut ()>);
/// Several threads, by the worker's raw handle. It needs [`Features::THREADS`](crate::Features::THREADS).
#[derive(Debug)]
pub enum Multi {}

impl sealed::Mode for Serialized {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_SERIALIZED;
}
impl sealed::Mode for Single {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_SINGLE;
}
impl sealed::Mode for Multi {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_MULTI;
}

/// Attributes of an application's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Only the thread that made it may use it.
    pub is_single_threaded: bool,
    /// The longest header of an active message that it sends.
    pub max_am_header: usize,
}

impl Library {
    /// Attributes of an application's worker.
    ///
    /// # Errors
    /// UCX refused.
    ///
    /// # Safety
    /// The worker is alive, and no other thread uses it meanwhile, unless it is `UCS_THREAD_MODE_MULTI`.
    pub unsafe fn query(self, worker: raw::ucp_worker_h) -> Result<Attributes, Error> {
        let mut attr = ucp_worker_attr_t {
            field_mask: u64::from(UCP_WORKER_ATTR_FIELD_THREAD_MODE | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER),
            ..ucp_worker_attr_t::default()
        };
        // SAFETY: the worker is alive by the caller's promise; the fields of the mask are written.
        let status = unsafe { self.0.ucp_worker_query(worker, &raw mut attr) };
        check(self.0, status, "asking UCX about the worker")?;
        Ok(Attributes {
            is_single_threaded: attr.thread_mode == UCS_THREAD_MODE_SINGLE,
            max_am_header: attr.max_am_header,
        })
    }
}

/// A worker, and the token of the thread that uses it. `H` handles its events.
pub struct Worker<H: Handler, M: Mode = Serialized> {
    /// From a box; UCX has the address, too, so that no reference to it is ever mutable.
    pub(crate) inner: NonNull<Inner<H>>,
    mode: PhantomData<M>,
}

// SAFETY: the worker is used by the thread that holds this, alone: nothing else leads to it but callbacks, which UCX runs while
// it is used, and those of an attached worker, behind its gate or as its thread mode allows. It is not `Sync`.
unsafe impl<H: Handler + Send, M: Mode + Send> Send for Worker<H, M> {}

impl<H: Handler, M: Mode> sealed::Token<H> for Worker<H, M> {
    #[inline]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn inner(&self) -> &Inner<H> {
        // SAFETY: from a box that is freed when the worker is dropped, or later; nothing refers to it mutably.
        unsafe { self.inner.as_ref() }
    }
}

impl<H: Handler, M: Mode> Operations<H> for Worker<H, M> {}

impl<H: Handler, M: Mode> Worker<H, M> {
    pub(crate) fn new(shared: Arc<Shared>, am_alignment: usize, handler: H) -> Result<Self, Error> {
        let mut params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: M::MODE,
            ..ucp_worker_params_t::default()
        };
        if am_alignment > 0 {
            params.field_mask |= u64::from(UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT);
            params.am_alignment = am_alignment;
        }
        let (ucx, mut raw) = (shared.ucx, std::ptr::null_mut());
        // SAFETY: the context is alive; the parameters are as their mask says.
        let status = unsafe { ucx.ucp_worker_create(shared.context(), &raw const params, &raw mut raw) };
        check(ucx, status, "making a worker of UCX")?;
        Ok(Self::from_inner(Inner::new(shared, raw, handler, Owner::Crate)))
    }

    fn from_inner(inner: Inner<H>) -> Self {
        Self {
            inner: NonNull::from(Box::leak(Box::new(inner))),
            mode: PhantomData,
        }
    }

    pub(crate) fn inner(&self) -> &Inner<H> {
        sealed::Token::inner(self)
    }

    /// The library that the worker is of.
    #[must_use]
    pub fn library(&self) -> Library {
        Library(self.inner().ucx())
    }

    /// The handler.
    #[inline]
    pub fn handler(&mut self) -> HandlerGuard<'_, H> {
        // SAFETY: the worker is borrowed mutably as long as the guard.
        unsafe { HandlerGuard::new(self.inner()) }
    }

    /// Progresses UCX, which calls the handler; whether UCX did anything. Runs deferred drops.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let inner = self.inner();
        if inner.closed.get() {
            return false;
        }
        if inner.has_deferred() {
            inner.run_deferred();
        }
        // SAFETY: the worker is alive, and this thread's by the token, which a callback does not have.
        let happened = unsafe { inner.ucx().ucp_worker_progress(inner.raw) } > 0;
        inner.resume();
        happened
    }

    /// How many operations are under way that were [posted](Operations::post).
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.inner().under_way()
    }

    /// Registers the handler for active messages of this id.
    ///
    /// # Errors
    /// UCX refused: the context needs [`Features::AM`](crate::Features::AM).
    pub fn receive(&mut self, id: u16) -> Result<(), Error> {
        let inner = self.inner();
        let registration = Box::new(Registration {
            inner: self.inner.as_ptr(),
            id,
        });
        // The registration is the worker's before UCX has it. Its box may move: UCX has the address of what is in it.
        let mut registrations = inner.registrations.borrow_mut();
        let registration = registrations.entry(id).or_insert(registration);
        let arg: *const Registration<H> = &raw const **registration;
        let status = self.set_handler(id, Some(on_message::<H>), arg.cast_mut().cast());
        if status.is_err() {
            registrations.remove(&id);
        }
        status
    }

    fn set_handler(&self, id: u16, cb: ucp_am_recv_callback_t, arg: *mut c_void) -> Result<(), Error> {
        let inner = self.inner();
        let handler = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: id.into(),
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb,
            arg,
        };
        let doing = "registering the active message (which needs UCP_FEATURE_AM in the worker's context)";
        inner.is_open().map_err(|status| Error { doing, status })?;
        let ucx = inner.ucx();
        // SAFETY: the worker is alive and this thread's; the argument is a registration of this worker, which lives until UCX has
        // another one or none, or the worker ends.
        let status = unsafe { ucx.ucp_worker_set_am_recv_handler(inner.raw, &raw const handler) };
        check(ucx, status, doing)
    }

    /// The worker's address, by which others [connect](Self::connect_to_worker) to it.
    ///
    /// # Errors
    /// UCX has no memory.
    pub fn address(&self) -> Result<Vec<u8>, Error> {
        let inner = self.inner();
        let (ucx, mut address, mut len) = (inner.ucx(), std::ptr::null_mut(), 0);
        // SAFETY: the worker is alive and this thread's; both results are written. The address is readable until it is released,
        // which is its last use.
        unsafe {
            let status = ucx.ucp_worker_get_address(inner.raw, &raw mut address, &raw mut len);
            check(ucx, status, "asking UCX for the address of its worker")?;
            let bytes = std::slice::from_raw_parts(address.cast::<u8>(), len).to_vec();
            ucx.ucp_worker_release_address(inner.raw, address);
            Ok(bytes)
        }
    }

    /// Readable when there may be something to do, once the worker is [armed](Self::arm).
    ///
    /// # Errors
    /// UCX refused: the context needs [`Features::WAKEUP`](crate::Features::WAKEUP).
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let inner = self.inner();
        let (ucx, mut fd) = (inner.ucx(), -1);
        // SAFETY: the worker is alive and this thread's; the descriptor is written.
        let status = unsafe { ucx.ucp_worker_get_efd(inner.raw, &raw mut fd) };
        let is_missing = status == UCS_OK && fd < 0;
        check(
            ucx,
            if is_missing { UCS_ERR_IO_ERROR } else { status },
            "asking UCX for a descriptor to sleep on (which needs UCP_FEATURE_WAKEUP)",
        )?;
        // SAFETY: the worker's own, and open as long as it lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Makes the descriptor readable by what happens next. `false`: something has happened; progress, and arm again.
    ///
    /// [Progress](Self::progress) until nothing happens in two successive rounds before, also after `false`. When the last endpoint over a
    /// transport is closed, UCX stops watching that transport, and goes on by other means in the next round in which nothing happens. A
    /// worker that is armed before that round is not woken by a peer that leaves, and keeps its socket. The second round is for what UCX
    /// defers: over a transport that no endpoint uses, a round that finds the end of a socket reports that nothing happened, and the next
    /// round closes the socket. A worker that is armed between the two keeps the socket until something else wakes it.
    ///
    /// # Errors
    /// UCX refused.
    pub fn arm(&mut self) -> Result<bool, Status> {
        let inner = self.inner();
        inner.is_open()?;
        // SAFETY: the worker is alive and this thread's.
        match unsafe { inner.ucx().ucp_worker_arm(inner.raw) } {
            UCS_ERR_BUSY => Ok(false),
            status => inner.check(status).map(|()| true),
        }
    }

    /// Makes the descriptor readable.
    ///
    /// # Errors
    /// UCX refused.
    pub fn signal(&mut self) -> Result<(), Status> {
        let inner = self.inner();
        inner.is_open()?;
        // SAFETY: the worker is alive and this thread's.
        inner.check(unsafe { inner.ucx().ucp_worker_signal(inner.raw) })
    }

    /// Makes the drop of this value leak the worker: for a drop on another thread than the worker's.
    pub fn abandon(&mut self) {
        self.inner().abandoned.set(true);
    }

    /// UCX's own handles of context and worker, for programs that use UCX by other means as well. They live as long as the
    /// worker.
    #[must_use]
    pub fn as_raw(&self) -> (raw::ucp_context_h, raw::ucp_worker_h) {
        (self.inner().shared.context(), self.inner().raw)
    }

    /// Uses a worker that the application made. Its handler may be called by the application's own calls of UCX, and may not begin
    /// operations. When it is dropped, or [detached](Self::detach), the worker is the application's alone.
    ///
    /// # Safety
    /// Context and worker are of this process's UCX, and belong together; the thread mode of the [attributes](Library::query) is this worker's.
    /// They are alive until the worker is detached or dropped; if operations are under way then, until these have ended, or the worker is
    /// destroyed, which leaks their buffers. Threads use the worker as its thread mode allows, calls of this crate included: if it is
    /// `UCS_THREAD_MODE_SINGLE`, this value stays on the thread that made it, and while a [`HandlerGuard`] exists, that
    /// thread uses the worker, its endpoints and its requests for nothing else.
    pub unsafe fn attach(
        library: Library,
        context: raw::ucp_context_h,
        worker: raw::ucp_worker_h,
        attributes: Attributes,
        handler: H,
    ) -> Self {
        // SAFETY: the context outlives the worker by the caller's promise.
        let shared = Arc::new(unsafe { Shared::new(library.0, context, false) });
        let owner = Owner::Application {
            is_single_threaded: attributes.is_single_threaded,
        };
        Self::from_inner(Inner::new(shared, worker, handler, owner))
    }

    /// Stops receiving messages on an application's worker, of every id. The data of earlier messages can be released until the
    /// worker is [left](Self::detach).
    pub fn take_handlers_back(&mut self) {
        let ids: Vec<u16> = self.inner().registrations.borrow().keys().copied().collect();
        for id in ids {
            if self.set_handler(id, None, std::ptr::null_mut()).is_ok() {
                self.inner().registrations.borrow_mut().remove(&id);
            }
        }
    }

    /// Leaves an application's worker: it does nothing from now on. `false`: UCX keeps a callback, and so its memory.
    ///
    /// # Panics
    /// If the worker was not attached.
    pub fn detach(&mut self) -> bool {
        let inner = self.inner();
        assert!(inner.is_attached(), "a worker that was not attached");
        if inner.closed.get() {
            return inner.registrations.borrow().is_empty();
        }
        inner.run_deferred();
        self.take_handlers_back();
        let inner = self.inner();
        inner.drop_keys();
        inner.closed.set(true);
        inner.shared.close();
        inner.registrations.borrow().is_empty()
    }

    /// Gives the worker's memory up: now, or with the end of the last operation.
    fn leave(&mut self) {
        let is_detached = self.detach();
        let inner = self.inner();
        let gate = inner.gate();
        inner.shut();
        // Where UCX has a callback that leads here, this stays for good.
        let is_orphaned = is_detached && inner.endpoints.get() == 0;
        inner.orphaned.set(is_orphaned);
        let is_last = inner.is_last();
        drop(gate);
        if !is_orphaned || !is_last {
            return;
        }
        // SAFETY: from a box, by `from_inner`. UCX has no callback that leads to it: none is registered, no operation is under way, and
        // its endpoints are closed.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

impl<H: Handler, M: Mode> Drop for Worker<H, M> {
    fn drop(&mut self) {
        if self.inner().abandoned.get() {
            return;
        }
        if self.inner().is_attached() {
            return self.leave();
        }
        let inner = self.inner();
        inner.run_deferred();
        let requests = inner.take_requests();
        // From here on callbacks do not call the handler. Keys go first: without the worker UCX does not destroy them.
        inner.closed.set(true);
        inner.shut();
        inner.drop_keys();
        // SAFETY: alive, this thread's, and used for the last time. It closes its endpoints, and may call back: what callbacks refer to
        // is freed below.
        unsafe { inner.ucx().ucp_worker_destroy(inner.raw) };
        drop(requests);
        inner.shared.close();
        // SAFETY: the worker is gone, and with it its use of the buffers; the box is from `from_inner`, and nothing leads to it now.
        unsafe {
            inner.free_under_way();
            drop(Box::from_raw(self.inner.as_ptr()));
        }
    }
}

impl<H: Handler, M: Mode> fmt::Debug for Worker<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("serial", &self.inner().shared.serial)
            .finish_non_exhaustive()
    }
}
