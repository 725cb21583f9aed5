//! The state that a worker shares with its keys: the context, and deferred drops.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ucx_sys::{Ucx, ucp_context, ucp_context_h, ucp_ep, ucp_mem, ucp_rkey};

use crate::operation::Held;

/// A context, and the deferred drops of its worker. The last key that goes cleans the context up.
pub(crate) struct Shared {
    pub(crate) ucx: &'static Ucx,
    context: Handle<ucp_context>,
    /// Which worker this is: no other has the number.
    pub(crate) serial: u64,
    owns_context: bool,
    /// `None` once the worker is gone.
    deferred: Mutex<Option<Vec<Deferred>>>,
    has_deferred: AtomicBool,
}

/// Something that was dropped, and that only the worker's thread may end.
pub(crate) enum Deferred {
    Endpoint(Handle<ucp_ep>),
    Key(Handle<ucp_rkey>),
    Memory(Handle<ucp_mem>),
    /// A request under way, and the bytes that it uses.
    Request(Handle<c_void>, Held),
}

/// A handle of UCX's, or an address that UCX has.
pub(crate) struct Handle<T>(pub(crate) *mut T);

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: a handle is a name. What has one uses it with the token of its worker, which one thread has at a time. After the worker is
// gone, memory is unmapped under the lock of `deferred`, and the context is cleaned up by the only owner that is left.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// A number that this process has not used for anything else.
pub(crate) fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// # Safety
    /// The context is alive. If it is owned, this is its only owner; if not, it outlives the worker.
    pub(crate) unsafe fn new(ucx: &'static Ucx, context: ucp_context_h, owns_context: bool) -> Self {
        Self {
            ucx,
            context: Handle(context),
            serial: next_serial(),
            owns_context,
            deferred: Mutex::new(Some(Vec::new())),
            has_deferred: AtomicBool::new(false),
        }
    }

    pub(crate) fn context(&self) -> ucp_context_h {
        self.context.0
    }

    fn deferred(&self) -> MutexGuard<'_, Option<Vec<Deferred>>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something to the worker. What is of a worker that is gone has ended with it, but for memory.
    pub(crate) fn defer(&self, what: Deferred) {
        let mut deferred = self.deferred();
        match &mut *deferred {
            Some(list) => {
                list.push(what);
                self.has_deferred.store(true, Ordering::Release);
            }
            None => {
                if let Deferred::Memory(Handle(handle)) = what {
                    // SAFETY: mapped in this context, which is alive, and used for the last time. No worker uses the context any
                    // more, and other drops wait for the lock.
                    unsafe { self.ucx.ucp_mem_unmap(self.context(), handle) };
                }
            }
        }
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.has_deferred.load(Ordering::Acquire)
    }

    pub(crate) fn take_deferred(&self) -> Vec<Deferred> {
        let mut deferred = self.deferred();
        self.has_deferred.store(false, Ordering::Release);
        deferred.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The worker is gone.
    pub(crate) fn close(&self) {
        let left = self.deferred().take();
        self.has_deferred.store(false, Ordering::Release);
        for what in left.into_iter().flatten() {
            self.defer(what);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.owns_context {
            // SAFETY: the worker and all memory had a reference to this, and are gone; this is the context's last use.
            unsafe { self.ucx.ucp_cleanup(self.context()) };
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}
