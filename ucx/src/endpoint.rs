//! Endpoints: the ways to other workers.

use std::sync::Arc;

use ucx_sys::{
    UCP_EP_CLOSE_FLAG_FORCE, UCP_OP_ATTR_FIELD_FLAGS, UCS_PTR_IS_PTR, lanes, ucp_ep_h, ucp_request_param_t,
};

use crate::handler::Handler;
use crate::inner::Inner;
use crate::raw;
use crate::shared::{Deferred, Shared, next_serial};

/// How an endpoint is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct EndpointOptions {
    /// UCX watches the peer, and calls [`Handler::endpoint_failed`] when it is gone. Both sides of
    /// a connection should say the same. Over shared memory it needs `UCX_MM_ERROR_HANDLING=y`, without which UCX uses other
    /// transports.
    pub peer_failure: bool,
}

impl EndpointOptions {
    /// Whether UCX watches the peer.
    pub fn peer_failure(mut self, yes: bool) -> Self {
        self.peer_failure = yes;
        self
    }
}

/// A way to another worker. When it is dropped, its worker closes it by force, at its next progress; see also
/// [`Outgoing::Close`](crate::Outgoing::Close).
#[derive(Debug)]
pub struct Endpoint {
    raw: ucp_ep_h,
    /// Of no other endpoint, unlike the handle.
    pub(crate) serial: u64,
    /// The worker's.
    pub(crate) worker: u64,
    /// The endpoint is closed when it is dropped.
    is_owned: bool,
    shared: Arc<Shared>,
}

/// What UCX knows an endpoint by. The next one may have it when an endpoint was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(usize);

// SAFETY: the handle is used with the token of its worker alone.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl EndpointId {
    pub(crate) fn new(raw: ucp_ep_h) -> Option<Self> {
        (!raw.is_null()).then(|| Self(raw.expose_provenance()))
    }

    /// Of UCX's own handle.
    #[must_use]
    pub fn of_raw(raw: raw::ucp_ep_h) -> Self {
        Self(raw.expose_provenance())
    }

    /// UCX's own handle.
    #[must_use]
    pub fn as_raw(self) -> raw::ucp_ep_h {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Endpoint {
    /// # Safety
    /// The endpoint is of this worker, and alive as long as it is used. If it is owned, nothing else closes it.
    pub(crate) unsafe fn new<H: Handler>(inner: &Inner<H>, raw: ucp_ep_h, is_owned: bool) -> Self {
        Self {
            raw,
            serial: next_serial(),
            worker: inner.shared.serial,
            is_owned,
            shared: Arc::clone(&inner.shared),
        }
    }

    /// What UCX knows it by.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        EndpointId::of_raw(self.raw)
    }

    /// UCX's own handle, for programs that use UCX by other means as well.
    #[must_use]
    pub fn as_raw(&self) -> raw::ucp_ep_h {
        self.raw
    }

    /// The handle, for use with the worker.
    #[inline]
    pub(crate) fn of<H: Handler>(&self, inner: &Inner<H>) -> ucp_ep_h {
        assert!(
            self.worker == inner.shared.serial,
            "an endpoint is used with another worker than its own"
        );
        self.raw
    }

    /// The handle, to be closed; `None` if it is not this value's to close.
    pub(crate) fn take(mut self) -> Option<ucp_ep_h> {
        std::mem::take(&mut self.is_owned).then_some(self.raw)
    }

    /// The transports and devices that carry it, such as `sysv/memory`, by UCX's own account.
    pub(crate) fn lanes<H: Handler>(&self, inner: &Inner<H>) -> Vec<String> {
        let ep = self.of(inner);
        // SAFETY: the endpoint is alive, and the caller has its worker's token.
        lanes(&unsafe { inner.ucx().endpoint_info(ep) })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.is_owned {
            self.shared.defer(Deferred::Endpoint(self.raw));
        }
    }
}

impl<H: Handler> Inner<H> {
    /// Closes an endpoint that was dropped, by force: it asks nothing of the peer, and drops what was not sent.
    pub(crate) fn drop_endpoint(&self, ep: ucp_ep_h) {
        self.endpoints.set(self.endpoints.get() - 1);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags: UCP_EP_CLOSE_FLAG_FORCE,
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint is alive, and used for the last time, as is the request.
        unsafe {
            let request = self.ucx().ucp_ep_close_nbx(ep, &raw const params);
            if UCS_PTR_IS_PTR(request) {
                self.ucx().ucp_request_free(request);
            }
        }
    }
}
