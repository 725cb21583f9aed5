//! Operations under way that the program asks about.

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use ucx_sys::{Status, UCS_INPROGRESS};

use crate::bytes::StableBytes;
use crate::handler::Handler;
use crate::operation::Operations;
use crate::shared::{Deferred, Shared};

/// An operation that is under way, and the buffer that it uses. If it is dropped, the worker keeps the buffer until the operation
/// has ended.
#[must_use = "the buffer comes back by `finish`"]
pub struct Request<B: StableBytes> {
    raw: *mut c_void,
    /// Initialised until the request is finished or dropped. Behind `MaybeUninit` the compiler assumes nothing of what the buffer
    /// leads to: UCX uses it.
    buffer: MaybeUninit<B>,
    shared: Arc<Shared>,
    is_finished: bool,
}

// SAFETY: the handle is used with the token of its worker alone.
unsafe impl<B: StableBytes> Send for Request<B> {}

impl<B: StableBytes> Request<B> {
    /// # Safety
    /// A request of the worker of `shared`, of an operation that uses the buffer, without a callback.
    pub(crate) unsafe fn new(raw: *mut c_void, buffer: MaybeUninit<B>, shared: &Arc<Shared>) -> Self {
        Self {
            raw,
            buffer,
            shared: Arc::clone(shared),
            is_finished: false,
        }
    }

    fn check(&self, serial: u64) {
        assert!(
            self.shared.serial == serial,
            "a request is used with another worker than its own"
        );
    }

    /// Whether the operation has ended.
    #[inline]
    pub fn is_done<H: Handler>(&self, worker: &impl Operations<H>) -> bool {
        let inner = worker.inner();
        self.check(inner.shared.serial);
        // SAFETY: a request of this worker that was not freed, by the check above.
        unsafe { inner.ucx().ucp_request_check_status(self.raw) != UCS_INPROGRESS }
    }

    /// The buffer, and what became of the operation.
    ///
    /// # Errors
    /// The request: the operation is under way.
    pub fn finish<H: Handler>(
        mut self,
        worker: &mut impl Operations<H>,
    ) -> Result<(B, Result<(), Status>), Self> {
        let inner = worker.inner();
        self.check(inner.shared.serial);
        // SAFETY: as above.
        let status = unsafe { inner.ucx().ucp_request_check_status(self.raw) };
        if status == UCS_INPROGRESS {
            return Err(self);
        }
        self.is_finished = true;
        // SAFETY: the operation has ended, and this is the request's last use; the buffer is taken once, as `is_finished` is set.
        let buffer = unsafe {
            inner.ucx().ucp_request_free(self.raw);
            self.buffer.assume_init_read()
        };
        Ok((buffer, inner.ucx().check(status)))
    }

    /// Asks UCX to end the operation, which then ends with an error. What is not a receive by tag may go on.
    pub fn cancel<H: Handler>(&self, worker: &mut impl Operations<H>) {
        let inner = worker.inner();
        self.check(inner.shared.serial);
        // SAFETY: as above.
        unsafe { inner.ucx().ucp_request_cancel(inner.raw, self.raw) };
    }
}

impl<B: StableBytes> Drop for Request<B> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        /// A buffer as UCX may still use it.
        struct Held<B>(MaybeUninit<B>);
        impl<B> Drop for Held<B> {
            fn drop(&mut self) {
                // SAFETY: initialised, and dropped once.
                unsafe { self.0.assume_init_drop() };
            }
        }
        let buffer = std::mem::replace(&mut self.buffer, MaybeUninit::uninit());
        self.shared
            .defer(Deferred::Request(self.raw, Box::new(Held(buffer))));
    }
}

impl<B: StableBytes> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}
