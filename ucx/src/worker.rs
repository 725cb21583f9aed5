//! Workers: what makes progress, on the thread that holds it.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use ucx_sys::{
    SockAddr, Status, UCP_AM_FLAG_WHOLE_MSG, UCP_AM_HANDLER_PARAM_FIELD_ARG, UCP_AM_HANDLER_PARAM_FIELD_CB,
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS, UCP_AM_HANDLER_PARAM_FIELD_ID, UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR,
    UCP_EP_PARAM_FIELD_CONN_REQUEST, UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
    UCP_EP_PARAM_FIELD_FLAGS, UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_EP_PARAM_FIELD_SOCK_ADDR,
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_LISTENER_ATTR_FIELD_SOCKADDR, UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR, UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
    UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_ERR_BUSY, UCS_ERR_CANCELED, UCS_ERR_IO_ERROR, UCS_OK,
    UCS_THREAD_MODE_MULTI, UCS_THREAD_MODE_SERIALIZED, UCS_THREAD_MODE_SINGLE, socket_addr,
    ucp_am_handler_param_t, ucp_conn_request_attr_t, ucp_ep_params_t, ucp_err_handler_t, ucp_listener_attr_t,
    ucp_listener_conn_handler_t, ucp_listener_params_t, ucp_worker_params_t, ucs_thread_mode_t,
};

use crate::callbacks::{on_connection, on_failure, on_message};
use crate::endpoint::{Endpoint, EndpointId, EndpointOptions};
use crate::handler::{Handler, HandlerGuard};
use crate::inner::{Inner, Registration};
use crate::library::{Error, Library};
use crate::listener::{ConnectionRequest, Listener};
use crate::memory::{Memory, RemoteMemory};
use crate::operation::{Operations, sealed};
use crate::raw;
use crate::shared::{Shared, next_serial};

/// How a worker is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct WorkerOptions {
    am_alignment: usize,
}

impl WorkerOptions {
    /// Data of active messages that can be [kept](crate::Message::keep) begin at a multiple of this.
    pub fn am_alignment(mut self, align: usize) -> Self {
        self.am_alignment = align;
        self
    }
}

/// How the threads of a program use a worker.
pub trait Mode: mode::Sealed {
    #[doc(hidden)]
    const MODE: ucs_thread_mode_t;
}

mod mode {
    pub trait Sealed {}
}

/// One thread at a time: the worker may be sent to another thread.
#[derive(Debug)]
pub enum Serialized {}
/// The thread that made it, alone.
#[derive(Debug)]
pub struct Single(PhantomData<*mut ()>);
/// Several threads, by the worker's raw handle. It needs [`Library::context_for_threads`].
#[derive(Debug)]
pub enum Multi {}

impl mode::Sealed for Serialized {}
impl Mode for Serialized {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_SERIALIZED;
}
impl mode::Sealed for Single {}
impl Mode for Single {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_SINGLE;
}
impl mode::Sealed for Multi {}
impl Mode for Multi {
    const MODE: ucs_thread_mode_t = UCS_THREAD_MODE_MULTI;
}

/// A worker, and the token of the thread that uses it. `H` is what the program does with what happens.
pub struct Worker<H: Handler, M: Mode = Serialized> {
    /// From a box; UCX has the address, too, so that no reference to it is ever mutable.
    pub(crate) inner: NonNull<Inner<H>>,
    mode: PhantomData<M>,
}

// SAFETY: the worker is used by the thread that holds this, alone: nothing else leads to it but callbacks, which UCX runs while
// it is used, and those of an attached worker, behind its gate. It is not `Sync`.
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
    pub(crate) fn new(shared: Arc<Shared>, options: &WorkerOptions, handler: H) -> Result<Self, Error> {
        let mut params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: M::MODE,
            ..ucp_worker_params_t::default()
        };
        if options.am_alignment > 0 {
            params.field_mask |= u64::from(UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT);
            params.am_alignment = options.am_alignment;
        }
        let (ucx, mut raw) = (shared.ucx, std::ptr::null_mut());
        // SAFETY: the context is alive; the parameters are as their mask says.
        let status = unsafe { ucx.ucp_worker_create(shared.context, &raw const params, &raw mut raw) };
        ucx.check(status)
            .map_err(Error::doing("making a worker of UCX"))?;
        Ok(Self::from_inner(Inner::new(shared, raw, handler, false)))
    }

    pub(crate) fn from_inner(inner: Inner<H>) -> Self {
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

    /// Lets UCX work, which calls the handler; whether UCX did anything. Ends what was dropped.
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

    /// Has active messages of this id given to the handler.
    ///
    /// # Errors
    /// UCX refused: the context needs [`Features::AM`](crate::Features::AM).
    pub fn receive(&mut self, id: u16) -> Result<(), Error> {
        let inner = self.inner();
        let registration = Box::new(Registration {
            inner: self.inner.as_ptr(),
            number: id.into(),
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

    /// Has UCX drop active messages of this id.
    ///
    /// # Errors
    /// UCX refused; it may call back as before.
    pub fn stop_receiving(&mut self, id: u16) -> Result<(), Error> {
        self.set_handler(id, None, std::ptr::null_mut())?;
        self.inner().registrations.borrow_mut().remove(&id);
        Ok(())
    }

    fn set_handler(
        &self,
        id: u16,
        cb: ucx_sys::ucp_am_recv_callback_t,
        arg: *mut std::ffi::c_void,
    ) -> Result<(), Error> {
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
        inner
            .is_open()
            .and_then(|()| {
                // SAFETY: the worker is alive and this thread's; the argument is a registration of this worker, which lives until UCX
                // has another one or none, or the worker ends.
                let status = unsafe {
                    inner
                        .ucx()
                        .ucp_worker_set_am_recv_handler(inner.raw, &raw const handler)
                };
                inner.ucx().check(status)
            })
            .map_err(Error::doing(
                "registering the active message (which needs UCP_FEATURE_AM in the worker's context)",
            ))
    }

    /// The worker's address, by which others [connect](Self::connect_to_worker) to it.
    ///
    /// # Errors
    /// UCX has no memory.
    pub fn address(&self) -> Result<Vec<u8>, Error> {
        let inner = self.inner();
        let (mut address, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the worker is alive and this thread's; both results are written. The address is readable until it is released,
        // which is its last use.
        unsafe {
            let status = inner
                .ucx()
                .ucp_worker_get_address(inner.raw, &raw mut address, &raw mut len);
            inner
                .ucx()
                .check(status)
                .map_err(Error::doing("asking UCX for the address of its worker"))?;
            let bytes = std::slice::from_raw_parts(address.cast::<u8>(), len).to_vec();
            inner.ucx().ucp_worker_release_address(inner.raw, address);
            Ok(bytes)
        }
    }

    /// An endpoint to a [`Listener`].
    ///
    /// # Errors
    /// UCX has no transport that connects to addresses of sockets.
    pub fn connect(&mut self, to: SocketAddr, options: EndpointOptions) -> Result<Endpoint, Status> {
        let address = SockAddr::new(to);
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR),
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: address.as_ucs(),
            ..ucp_ep_params_t::default()
        };
        // SAFETY: the address lives during the call.
        unsafe { self.endpoint(params, options) }
    }

    /// An endpoint to the worker of this [address](Self::address).
    ///
    /// # Errors
    /// No transport leads there.
    ///
    /// # Safety
    /// The bytes are the address of a worker, as UCX said it: UCX believes them.
    pub unsafe fn connect_to_worker(
        &mut self,
        address: &[u8],
        options: EndpointOptions,
    ) -> Result<Endpoint, Status> {
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS),
            address: address.as_ptr().cast(),
            ..ucp_ep_params_t::default()
        };
        // SAFETY: the address lives during the call, and is one by the caller's promise.
        unsafe { self.endpoint(params, options) }
    }

    /// An endpoint to a peer that connects.
    ///
    /// # Errors
    /// The peer is gone, or the listener is.
    pub fn accept(
        &mut self,
        request: ConnectionRequest,
        options: EndpointOptions,
    ) -> Result<Endpoint, Status> {
        self.check_request(&request)?;
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_CONN_REQUEST),
            conn_request: request.raw,
            ..ucp_ep_params_t::default()
        };
        // SAFETY: the request is used up here, and its listener is alive by the check above.
        unsafe { self.endpoint(params, options) }
    }

    /// # Safety
    /// The parameters are as their mask says.
    unsafe fn endpoint(
        &mut self,
        mut params: ucp_ep_params_t,
        options: EndpointOptions,
    ) -> Result<Endpoint, Status> {
        let inner = self.inner();
        inner.is_open()?;
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        if options.peer_failure {
            params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLER);
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler = ucp_err_handler_t {
                cb: Some(on_failure::<H>),
                arg: self.inner.as_ptr().cast(),
            };
        }
        let mut ep = std::ptr::null_mut();
        // SAFETY: the worker is alive and this thread's; the parameters are by the caller's promise.
        let status = unsafe {
            inner
                .ucx()
                .ucp_ep_create(inner.raw, &raw const params, &raw mut ep)
        };
        inner.ucx().check(status)?;
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
        unsafe { Endpoint::new(self.inner(), endpoint.as_raw(), false) }
    }

    /// The transports and devices that carry an endpoint, such as `sysv/memory`, by UCX's own account.
    #[must_use]
    pub fn lanes(&self, endpoint: &Endpoint) -> Vec<String> {
        endpoint.lanes(self.inner())
    }

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
        let mut raw = std::ptr::null_mut();
        // SAFETY: the worker is alive and this thread's; the registration lives as long as the listener.
        let status = unsafe {
            inner
                .ucx()
                .ucp_listener_create(inner.raw, &raw const params, &raw mut raw)
        };
        inner
            .ucx()
            .check(status)
            .map_err(Error::doing("listening by UCX"))?;
        inner.listeners.borrow_mut().insert(serial, (raw, registration));
        let mut listener = Listener {
            serial,
            worker: inner.shared.serial,
            address: at,
            shared: Arc::clone(&inner.shared),
        };
        let mut attr = ucp_listener_attr_t {
            field_mask: u64::from(UCP_LISTENER_ATTR_FIELD_SOCKADDR),
            ..ucp_listener_attr_t::default()
        };
        // SAFETY: the listener is alive; the fields of the mask are written.
        let status = unsafe { inner.ucx().ucp_listener_query(raw, &raw mut attr) };
        inner
            .ucx()
            .check(status)
            .map_err(Error::doing("asking UCX for the address that it listens on"))?;
        listener.address = socket_addr(&attr.sockaddr).unwrap_or(at);
        Ok(listener)
    }

    /// Stops listening, now.
    pub fn close_listener(&mut self, listener: Listener) {
        let inner = self.inner();
        assert!(
            listener.worker == inner.shared.serial,
            "a listener is closed by another worker than its own"
        );
        inner.drop_listener(listener.serial);
    }

    /// Whether a request may be answered.
    fn check_request(&self, request: &ConnectionRequest) -> Result<(), Status> {
        let inner = self.inner();
        assert!(
            request.worker == inner.shared.serial,
            "a connection is answered by another worker than its own"
        );
        if !inner.listeners.borrow().contains_key(&request.listener) {
            return Err(inner.ucx().status(UCS_ERR_CANCELED));
        }
        Ok(())
    }

    /// Does without a peer that connects.
    pub fn reject(&mut self, request: ConnectionRequest) {
        if self.check_request(&request).is_err() {
            return;
        }
        let inner = self.inner();
        let listener = inner
            .listeners
            .borrow()
            .get(&request.listener)
            .map(|known| known.0);
        if let Some(listener) = listener {
            // SAFETY: the listener is alive, and the request is used up here.
            unsafe { inner.ucx().ucp_listener_reject(listener, request.raw) };
        }
    }

    /// From where a peer connects.
    #[must_use]
    pub fn client_address(&self, request: &ConnectionRequest) -> Option<SocketAddr> {
        self.check_request(request).ok()?;
        let mut attr = ucp_conn_request_attr_t {
            field_mask: u64::from(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
            ..ucp_conn_request_attr_t::default()
        };
        // SAFETY: the request was not used up, as it exists; the fields of the mask are written.
        let status = unsafe {
            self.inner()
                .ucx()
                .ucp_conn_request_query(request.raw, &raw mut attr)
        };
        (status == UCS_OK)
            .then(|| socket_addr(&attr.client_address))
            .flatten()
    }

    /// Memory that peers reach.
    ///
    /// # Errors
    /// UCX has none.
    pub fn allocate(&mut self, len: usize) -> Result<Memory, Error> {
        Memory::allocate(self.inner(), len)
    }

    /// A peer's memory of `len` bytes at `address`, by its [key](Memory::key), for operations over `endpoint`.
    ///
    /// # Errors
    /// No transport of the endpoint reaches it.
    ///
    /// # Safety
    /// Key, address and length are those of a [`Memory`] of the peer's that exists: UCX believes them.
    pub unsafe fn unpack(
        &mut self,
        endpoint: &Endpoint,
        key: &[u8],
        address: u64,
        len: usize,
    ) -> Result<RemoteMemory, Error> {
        // SAFETY: the caller's promise.
        unsafe { RemoteMemory::unpack(self.inner(), endpoint, key, address, len) }
    }

    /// Readable when there may be something to do, once the worker is [armed](Self::arm).
    ///
    /// # Errors
    /// UCX refused: the context needs [`Features::WAKEUP`](crate::Features::WAKEUP).
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let inner = self.inner();
        let mut fd = -1;
        // SAFETY: the worker is alive and this thread's; the descriptor is written.
        let status = unsafe { inner.ucx().ucp_worker_get_efd(inner.raw, &raw mut fd) };
        let doing = Error::doing("asking UCX for a descriptor to sleep on (which needs UCP_FEATURE_WAKEUP)");
        if status == UCS_OK && fd < 0 {
            return Err(doing(inner.ucx().status(UCS_ERR_IO_ERROR)));
        }
        inner.ucx().check(status).map_err(doing)?;
        // SAFETY: the worker's own, and open as long as it lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Makes the descriptor readable by what happens next. `false`: something has happened; progress, and arm again.
    ///
    /// # Errors
    /// UCX refused.
    pub fn arm(&mut self) -> Result<bool, Status> {
        let inner = self.inner();
        inner.is_open()?;
        // SAFETY: the worker is alive and this thread's.
        match unsafe { inner.ucx().ucp_worker_arm(inner.raw) } {
            UCS_ERR_BUSY => Ok(false),
            status => inner.ucx().check(status).map(|()| true),
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
        let status = unsafe { inner.ucx().ucp_worker_signal(inner.raw) };
        inner.ucx().check(status)
    }

    /// Has the drop of this value leave everything as it is, and leak it: where another thread than the worker's drops it.
    pub fn abandon(&mut self) {
        self.inner().abandoned.set(true);
    }

    /// UCX's own handles of context and worker, for programs that use UCX by other means as well. They live as long as the
    /// worker.
    #[must_use]
    pub fn as_raw(&self) -> (raw::ucp_context_h, raw::ucp_worker_h) {
        (self.inner().shared.context, self.inner().raw)
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
        // What still happens has no meaning any more.
        inner.closed.set(true);
        inner.shut();
        for key in inner.keys.take() {
            // SAFETY: unpacked by this worker, and used for the last time: without the worker keys are not destroyed.
            unsafe { inner.ucx().ucp_rkey_destroy(key) };
        }
        let listeners: Vec<u64> = inner.listeners.borrow().keys().copied().collect();
        for listener in listeners {
            inner.drop_listener(listener);
        }
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
