//! What a program does with what happens.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use ucx_sys::Status;

use crate::buffer::Buffer;
use crate::endpoint::EndpointId;
use crate::inner::Inner;
use crate::message::{Message, Readable};
use crate::operation::{Operations, sealed};

/// What a program does with what happens to its worker. Called while the worker is used: by [`progress`](crate::Worker::progress)
/// above all. A panic of the handler goes on when UCX has returned.
pub trait Handler: Sized + 'static {
    /// What operations are for that end with [`completed`](Self::completed).
    type Tag: Send + 'static;

    /// An active message of an id that [is received](crate::Worker::receive) has arrived. A message that the handler neither
    /// copies nor keeps nor fetches is dropped.
    fn message(&mut self, worker: &mut Callback<'_, Self>, message: Message<'_>);

    /// An active message without a header has arrived, whose data need not be fetched. If the handler returns `true`, it has consumed the
    /// message; otherwise [`message`](Self::message) is called with it.
    #[inline(always)]
    fn data_only(&mut self, id: u16, data: Readable<'_>) -> bool {
        let _ = (id, data);
        false
    }

    /// An operation that was [posted](Operations::post) has ended, and this is its buffer.
    fn completed(
        &mut self,
        worker: &mut Callback<'_, Self>,
        buffer: Buffer<Self::Tag>,
        result: Result<(), Status>,
    ) {
        let _ = (worker, buffer, result);
    }

    /// The peer of an endpoint is gone. The endpoint is of no more use; drop or [close](crate::Operation::Close) it.
    fn endpoint_failed(&mut self, endpoint: EndpointId, why: Status) {
        let _ = (endpoint, why);
    }
}

/// The token of a worker in its handler: operations may begin, but the worker cannot be progressed.
pub struct Callback<'a, H: Handler> {
    inner: &'a Inner<H>,
    /// Neither sent nor shared: of this call, on this thread.
    thread: PhantomData<*mut ()>,
}

impl<'a, H: Handler> Callback<'a, H> {
    pub(crate) fn new(inner: &'a Inner<H>) -> Self {
        Self {
            inner,
            thread: PhantomData,
        }
    }
}

impl<H: Handler> sealed::Token<H> for Callback<'_, H> {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn inner(&self) -> &Inner<H> {
        self.inner
    }

    fn may_begin(&self) -> bool {
        // The handler of an application's worker may hold a lock that its callbacks wait for.
        !self.inner.is_attached()
    }
}

impl<H: Handler> Operations<H> for Callback<'_, H> {}

/// The handler of a worker. While it exists, the worker is not used, and callbacks of an [attached](crate::Worker::attach) one wait, unless one
/// thread alone may use it.
pub struct HandlerGuard<'a, H> {
    handler: &'a mut H,
    _gate: Option<MutexGuard<'a, ()>>,
}

impl<'a, H: Handler> HandlerGuard<'a, H> {
    /// # Safety
    /// The caller borrows the worker mutably for `'a`.
    #[inline]
    pub(crate) unsafe fn new(inner: &'a Inner<H>) -> Self {
        let gate = inner.gate();
        Self {
            // SAFETY: callbacks run in calls of UCX: the worker's are excluded by the caller's promise, those of the application's calls by the gate or,
            // without one, by the promise of `attach`.
            handler: unsafe { &mut *inner.handler() },
            _gate: gate,
        }
    }
}

impl<H> Deref for HandlerGuard<'_, H> {
    type Target = H;

    #[inline]
    fn deref(&self) -> &H {
        self.handler
    }
}

impl<H> DerefMut for HandlerGuard<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut H {
        self.handler
    }
}
