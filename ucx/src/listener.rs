//! Listeners, and the peers that connect to them.

use std::net::SocketAddr;
use std::sync::Arc;

use ucx_sys::{
    SockAddr, Status, UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR, UCP_LISTENER_ATTR_FIELD_SOCKADDR,
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER, UCP_LISTENER_PARAM_FIELD_SOCK_ADDR, UCS_ERR_CANCELED, UCS_OK,
    socket_addr, ucp_conn_request, ucp_conn_request_attr_t, ucp_listener_attr_t, ucp_listener_conn_handler_t,
    ucp_listener_h, ucp_listener_params_t,
};

use crate::callbacks::on_connection;
use crate::handler::Handler;
use crate::inner::Registration;
use crate::library::{Error, check};
use crate::shared::{Deferred, Handle, Shared, next_serial};
use crate::worker::{Mode, Worker};

/// An address that peers connect to. When it is dropped, its worker stops listening, at its next progress.
#[derive(Debug)]
pub struct Listener {
    serial: u64,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A peer that connects. It is [accepted](crate::Worker::accept) or [rejected](crate::Worker::reject).
#[derive(Debug)]
#[must_use = "the peer waits for an answer"]
pub struct ConnectionRequest {
    pub(crate) worker: u64,
    /// The listener's number: UCX needs it alive to answer.
    pub(crate) listener: u64,
    pub(crate) raw: Handle<ucp_conn_request>,
}

impl Listener {
    /// Where it listens: with the port that the system chose, if none was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.defer(Deferred::Listener(self.serial));
    }
}

impl<H: Handler, M: Mode> Worker<H, M> {
    /// Listens.
    ///
    /// # Errors
    /// The port is in use, or no transport listens.
    pub fn listen(&mut self, at: SocketAddr) -> Result<Listener, Error> {
        let inner = self.inner();
        let (serial, address) = (next_serial(), SockAddr::new(at));
        let registration = Box::new(Registration {
            inner: self.inner.as_ptr(),
            number: serial,
        });
        let params = ucp_listener_params_t {
            field_mask: u64::from(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER),
            sockaddr: address.as_ucs(),
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_connection::<H>),
                arg: (&raw const *registration).cast_mut().cast(),
            },
            ..ucp_listener_params_t::default()
        };
        let (ucx, mut raw) = (inner.ucx(), std::ptr::null_mut());
        // SAFETY: the worker is alive and this thread's; the registration lives as long as the listener.
        let status = unsafe { ucx.ucp_listener_create(inner.raw, &raw const params, &raw mut raw) };
        check(ucx, status, "listening by UCX")?;
        inner.listeners.borrow_mut().insert(serial, (raw, registration));
        let mut listener = Listener {
            serial,
            address: at,
            shared: Arc::clone(&inner.shared),
        };
        let mut attr = ucp_listener_attr_t {
            field_mask: u64::from(UCP_LISTENER_ATTR_FIELD_SOCKADDR),
            ..ucp_listener_attr_t::default()
        };
        // SAFETY: the listener is alive; the fields of the mask are written.
        let status = unsafe { ucx.ucp_listener_query(raw, &raw mut attr) };
        check(ucx, status, "asking UCX for the address that it listens on")?;
        listener.address = socket_addr(&attr.sockaddr).unwrap_or(at);
        Ok(listener)
    }

    /// Stops listening, now.
    pub fn close_listener(&mut self, listener: Listener) {
        let inner = self.inner();
        inner.check_owner("a listener is", listener.shared.serial);
        inner.drop_listener(listener.serial);
    }

    /// The listener of a request, if it may be answered.
    pub(crate) fn listener_of(&self, request: &ConnectionRequest) -> Result<ucp_listener_h, Status> {
        let inner = self.inner();
        inner.check_owner("a connection is", request.worker);
        let listeners = inner.listeners.borrow();
        let known = listeners.get(&request.listener).map(|known| known.0);
        known.ok_or_else(|| inner.ucx().status(UCS_ERR_CANCELED))
    }

    /// Refuses a peer that connects.
    pub fn reject(&mut self, request: ConnectionRequest) {
        if let Ok(listener) = self.listener_of(&request) {
            // SAFETY: the listener is alive, and the request is used up here.
            unsafe { self.inner().ucx().ucp_listener_reject(listener, request.raw.0) };
        }
    }

    /// From where a peer connects.
    #[must_use]
    pub fn client_address(&self, request: &ConnectionRequest) -> Option<SocketAddr> {
        self.listener_of(request).ok()?;
        let mut attr = ucp_conn_request_attr_t {
            field_mask: u64::from(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
            ..ucp_conn_request_attr_t::default()
        };
        let ucx = self.inner().ucx();
        // SAFETY: the request was not used up, as it exists; the fields of the mask are written.
        let status = unsafe { ucx.ucp_conn_request_query(request.raw.0, &raw mut attr) };
        (status == UCS_OK)
            .then(|| socket_addr(&attr.client_address))
            .flatten()
    }
}
