//! Endpoints and listeners of a worker: how they are made, and how they end.

use ucx_sys::*;

use super::engine::{Locked, Refused};
use super::inbox::{on_failure, on_knock, on_sent};
use super::parcel::{Parcel, Purpose};
use crate::transport::address::WorkerAddress;

impl Locked<'_> {
    /// An endpoint for a source.
    pub(super) fn connect(&mut self, address: &SockAddr) -> Result<ucp_ep_h, Status> {
        self.endpoint(ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR),
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: address.as_ucs(),
            ..ucp_ep_params_t::default()
        })
    }

    /// An endpoint to a worker whose address came by other means. Nobody is asked yet.
    pub(super) fn connect_to_worker(&mut self, address: &WorkerAddress) -> Result<ucp_ep_h, Status> {
        self.endpoint(ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
            address: address.as_bytes().as_ptr().cast(),
            ..ucp_ep_params_t::default()
        })
    }

    /// The worker's address, which others connect to.
    pub(super) fn address(&mut self) -> Result<WorkerAddress, Refused> {
        let refused = |status| Refused {
            doing: "asking UCX for the address of its worker",
            status,
        };
        let ucx = self.ucx();
        let (mut address, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the worker is alive and this thread's; both are written.
        let status = unsafe { ucx.ucp_worker_get_address(self.worker(), &raw mut address, &raw mut len) };
        ucx.check(status).map_err(refused)?;
        // SAFETY: UCX wrote an address of that length, which stays until it is released below.
        let found = WorkerAddress::new(self.am_id(), unsafe {
            std::slice::from_raw_parts(address.cast(), len)
        });
        // SAFETY: the worker's own, and used for the last time.
        unsafe { ucx.ucp_worker_release_address(self.worker(), address) };
        found.ok_or_else(|| refused(ucx.status(UCS_ERR_EXCEEDS_LIMIT)))
    }

    /// An endpoint for somebody who knocked. Uses the request up.
    pub(super) fn accept(&mut self, request: ucp_conn_request_h) -> Result<ucp_ep_h, Status> {
        self.endpoint(ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_CONN_REQUEST),
            conn_request: request,
            ..ucp_ep_params_t::default()
        })
    }

    fn endpoint(&mut self, mut params: ucp_ep_params_t) -> Result<ucp_ep_h, Status> {
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER);
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_failure),
            arg: self.inbox_ptr(),
        };
        self.is_open()?;
        let mut ep = std::ptr::null_mut();
        // SAFETY: the worker is alive and this thread's; the parameters are as their mask says.
        let status = unsafe {
            self.ucx()
                .ucp_ep_create(self.worker(), &raw const params, &raw mut ep)
        };
        self.ucx().check(status).map(|()| ep)
    }

    /// Listens.
    pub(super) fn listen(&mut self, address: &SockAddr) -> Result<ucp_listener_h, Status> {
        let params = ucp_listener_params_t {
            field_mask: u64::from(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER),
            sockaddr: address.as_ucs(),
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_knock),
                arg: self.inbox_ptr(),
            },
            ..ucp_listener_params_t::default()
        };
        let mut listener = std::ptr::null_mut();
        // SAFETY: as above; the inbox outlives the listener.
        let status = unsafe {
            self.ucx()
                .ucp_listener_create(self.worker(), &raw const params, &raw mut listener)
        };
        self.ucx().check(status).map(|()| listener)
    }

    /// Closes an endpoint by force: it asks nobody, and what was not sent is dropped. The operation, if it has not ended.
    pub(super) fn close(&mut self, ep: ucp_ep_h) -> Option<*mut Parcel> {
        if self.state.closed {
            return None;
        }
        let mut parcel = self.inbox().parcel(0);
        parcel.purpose = Purpose::Closing;
        let parcel = Box::into_raw(parcel);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
            flags: UCP_EP_CLOSE_FLAG_FORCE,
            cb: ucp_request_param_t__bindgen_ty_1 { send: Some(on_sent) },
            user_data: parcel.cast(),
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint is alive and used for the last time; its worker is this thread's.
        let request = unsafe { self.ucx().ucp_ep_close_nbx(ep, &raw const params) };
        if UCS_PTR_IS_PTR(request) {
            self.state.closing += 1;
        }
        if let Err(status) = self.under_way(parcel, request) {
            tracing::debug!(%status, "closing an endpoint");
        }
        UCS_PTR_IS_PTR(request).then_some(parcel)
    }
}
