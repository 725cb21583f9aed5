//! The state that a worker shares with its keys: the context, and deferred drops.

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ucx_sys::{Ucx, ucp_context_h, ucp_ep_h, ucp_mem_h, ucp_rkey_h};

use crate::operation::Held;

/// A context, and the deferred drops of its worker. The last key that goes cleans the context up.
pub(crate) struct Shared {
    pub(crate) ucx: &'static Ucx,
    pub(crate) context: ucp_context_h,
    /// Which worker this is: no other has the number.
    pub(crate) serial: u64,
    owns_context: bool,
    /// `None` once the worker is gone.
    deferred: Mutex<Option<Vec<Deferred>>>,
    has_deferred: AtomicBool,
}

/// Something that was dropped, and that only the worker's thread may end.
pub(crate) enum Deferred {
    Endpoint(ucp_ep_h),
    Listener(u64),
    Key(ucp_rkey_h),
    Memory(ucp_mem_h),
    /// A request under way, and the bytes that it uses.
    Request(*mut c_void, Held),
}

// SAFETY: the handles are used by the thread that holds the worker; after the worker is gone, memory is unmapped under the lock of
// `deferred`, and the context is cleaned up by the only owner that is left.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

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
            context,
            serial: next_serial(),
            owns_context,
            deferred: Mutex::new(Some(Vec::new())),
            has_deferred: AtomicBool::new(false),
        }
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
                if let Deferred::Memory(handle) = what {
                    // SAFETY: mapped in this context, which is alive, and used for the last time. No worker uses the context any
                    // more, and other drops wait for the lock.
                    unsafe { self.ucx.ucp_mem_unmap(self.context, handle) };
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
            unsafe { self.ucx.ucp_cleanup(self.context) };
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
