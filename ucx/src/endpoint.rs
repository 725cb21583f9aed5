//! Endpoints: routes to other workers.

use std::sync::Arc;

use ucx_sys::{
    Status, UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_OP_ATTR_FIELD_FLAGS, UCS_PTR_IS_PTR, lanes, ucp_ep, ucp_ep_h, ucp_ep_params_t, ucp_err_handler_t,
    ucp_request_param_t,
};

use crate::callbacks::on_failure;
use crate::handler::Handler;
use crate::inner::Inner;
use crate::raw;
use crate::shared::{Deferred, Handle, Shared, next_serial};
use crate::worker::{Mode, Worker};

/// Whether UCX detects that the peer of an endpoint is gone. Both sides of a connection should say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorMode {
    /// It does not.
    #[default]
    None,
    /// UCX calls [`Handler::endpoint_failed`]. Over shared memory it needs `UCX_MM_ERROR_HANDLING=y`, without which UCX uses other
    /// transports.
    Peer,
}

/// A route to another worker. When it is dropped, its worker closes it by force, at its next progress; see also
/// [`Operation::Close`](crate::Operation::Close).
#[derive(Debug)]
pub struct Endpoint {
    raw: Handle<ucp_ep>,
    /// Of no other endpoint, unlike the handle.
    pub(crate) serial: u64,
    /// The endpoint is closed when it is dropped.
    is_owned: bool,
    shared: Arc<Shared>,
}

/// UCX's name for an endpoint. The next endpoint may get the id of one that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(usize);

impl EndpointId {
    pub(crate) fn new(raw: ucp_ep_h) -> Option<Self> {
        (!raw.is_null()).then(|| Self::of_raw(raw))
    }

    /// Of UCX's own handle.
    #[must_use]
    pub fn of_raw(raw: raw::ucp_ep_h) -> Self {
        Self(raw.expose_provenance())
    }
}

impl Endpoint {
    /// # Safety
    /// The endpoint is of this worker, and alive as long as it is used. If it is owned, nothing else closes it.
    unsafe fn new<H: Handler>(inner: &Inner<H>, raw: ucp_ep_h, is_owned: bool) -> Self {
        Self {
            raw: Handle(raw),
            serial: next_serial(),
            is_owned,
            shared: Arc::clone(&inner.shared),
        }
    }

    /// UCX's name for it.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        EndpointId::of_raw(self.raw.0)
    }

    /// Whether it is closed when it is dropped: it was not [borrowed](crate::Worker::borrow_endpoint).
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// UCX's own handle, for programs that use UCX by other means as well.
    #[must_use]
    pub fn as_raw(&self) -> raw::ucp_ep_h {
        self.raw.0
    }

    /// The handle, for use with the worker.
    #[inline]
    pub(crate) fn of<H: Handler>(&self, inner: &Inner<H>) -> ucp_ep_h {
        inner.check_owner("an endpoint is", self.shared.serial);
        self.raw.0
    }

    /// The handle, to be closed; `None` if it is not this value's to close.
    pub(crate) fn take(mut self) -> Option<ucp_ep_h> {
        std::mem::take(&mut self.is_owned).then_some(self.raw.0)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.is_owned {
            self.shared.defer(Deferred::Endpoint(Handle(self.raw.0)));
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

impl<H: Handler, M: Mode> Worker<H, M> {
    /// An endpoint to the worker of this [address](Self::address).
    ///
    /// # Errors
    /// No transport leads there.
    ///
    /// # Safety
    /// The bytes are the address of a worker, as UCX returned it: UCX does not validate them.
    pub unsafe fn connect_to_worker(
        &mut self,
        address: &[u8],
        errors: ErrorMode,
    ) -> Result<Endpoint, Status> {
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
            address: address.as_ptr().cast(),
            ..ucp_ep_params_t::default()
        };
        // SAFETY: the address lives during the call, and is one by the caller's promise.
        unsafe { self.endpoint(params, errors) }
    }

    /// # Safety
    /// The parameters are as their mask says.
    unsafe fn endpoint(
        &mut self,
        mut params: ucp_ep_params_t,
        errors: ErrorMode,
    ) -> Result<Endpoint, Status> {
        let inner = self.inner();
        inner.is_open()?;
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        if errors == ErrorMode::Peer {
            params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLER);
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler = ucp_err_handler_t {
                cb: Some(on_failure::<H>),
                arg: self.inner.as_ptr().cast(),
            };
        }
        let (ucx, mut ep) = (inner.ucx(), std::ptr::null_mut());
        // SAFETY: the worker is alive and this thread's; the parameters are by the caller's promise.
        ucx.check(unsafe { ucx.ucp_ep_create(inner.raw, &raw const params, &raw mut ep) })?;
        inner.endpoints.set(inner.endpoints.get() + 1);
        // SAFETY: made above, and closed by nothing else.
        Ok(unsafe { Endpoint::new(inner, ep, true) })
    }

    /// An endpoint that something else owns, and that is not closed when it is dropped.
    ///
    /// # Safety
    /// The endpoint is of this worker, and alive as long as the result is used.
    pub unsafe fn borrow_endpoint(&self, endpoint: EndpointId) -> Endpoint {
        // SAFETY: the caller's promise.
        unsafe {
            Endpoint::new(
                self.inner(),
                std::ptr::with_exposed_provenance_mut(endpoint.0),
                false,
            )
        }
    }

    /// The transports and devices that carry an endpoint, such as `sysv/memory`, by UCX's own account.
    #[must_use]
    pub fn lanes(&self, endpoint: &Endpoint) -> Vec<String> {
        let ep = endpoint.of(self.inner());
        // SAFETY: the endpoint is alive, and the caller has its worker's token.
        lanes(&unsafe { self.inner().ucx().endpoint_info(ep) })
    }
}
