//! Workers that an application made, and uses itself.
//!
//! The application's calls of UCX run this crate's callbacks as well, maybe on another thread than the one that has the
//! token: a gate keeps handler and callbacks apart. When the worker is left, operations may be under way: their buffers, and what
//! callbacks refer to, live until the last of them has ended.

use std::sync::Arc;

use ucx_sys::{
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER, UCP_WORKER_ATTR_FIELD_THREAD_MODE, UCS_THREAD_MODE_SINGLE,
    ucp_worker_attr_t,
};

use crate::handler::Handler;
use crate::inner::Inner;
use crate::library::{Error, Library};
use crate::raw;
use crate::shared::Shared;
use crate::worker::{Mode, Worker};

/// What UCX says of an application's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Only the thread that made it may use it.
    pub is_single_threaded: bool,
    /// The longest header of an active message that it sends.
    pub max_am_header: usize,
}

impl Library {
    /// What UCX says of an application's worker.
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
        self.0
            .check(status)
            .map_err(Error::doing("asking UCX about the worker"))?;
        Ok(Attributes {
            is_single_threaded: attr.thread_mode == UCS_THREAD_MODE_SINGLE,
            max_am_header: attr.max_am_header,
        })
    }
}

impl<H: Handler, M: Mode> Worker<H, M> {
    /// Uses a worker that the application made. Its handler may be called by the application's own calls of UCX, and may not begin
    /// operations. When it is dropped, or [detached](Self::detach), the worker is the application's alone.
    ///
    /// # Safety
    /// Context and worker are of this process's UCX, and belong together. They are alive until the worker is detached or dropped;
    /// if operations are under way then, until these have ended, or the worker is destroyed, which leaks their buffers. Threads use
    /// the worker as its thread mode allows, calls of this crate included: if it is `UCS_THREAD_MODE_SINGLE`, this value stays on
    /// the thread that made it.
    pub unsafe fn attach(
        library: Library,
        context: raw::ucp_context_h,
        worker: raw::ucp_worker_h,
        handler: H,
    ) -> Self {
        // SAFETY: the context outlives the worker by the caller's promise.
        let shared = Arc::new(unsafe { Shared::new(library.0, context, false) });
        Self::from_inner(Inner::new(shared, worker, handler, true))
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
        let ids: Vec<u16> = inner.registrations.borrow().keys().copied().collect();
        for id in ids {
            // What remains is seen below.
            let _ = self.stop_receiving(id);
        }
        let inner = self.inner();
        for key in inner.keys.take() {
            // SAFETY: unpacked by this worker, and used for the last time.
            unsafe { inner.ucx().ucp_rkey_destroy(key) };
        }
        inner.closed.set(true);
        inner.shared.close();
        inner.registrations.borrow().is_empty()
    }

    /// Gives the worker's memory up: now, or with the end of the last operation.
    pub(crate) fn leave(&mut self) {
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
