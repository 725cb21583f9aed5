//! A context, a worker and what its callbacks said.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucx_sys::*;

use super::super::Result;

/// The active message.
const MESSAGE: u32 = 1;

/// What happened. Callbacks run while the worker is progressed, on the same thread, and do nothing but this.
#[derive(Default)]
pub(super) struct Happened {
    pub(super) knocks: RefCell<Vec<ucp_conn_request_h>>,
    pub(super) failed: RefCell<Vec<ucp_ep_h>>,
    /// Bodies that are to be fetched.
    fetchable: RefCell<Vec<(*mut c_void, usize)>>,
    pub(super) messages: Cell<u64>,
}

/// A worker, and what it does at the moment.
pub(super) struct Worker {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: ucp_worker_h,
    efd: i32,
    happened: NonNull<Happened>,
    /// Operations under way, and the memory that they use.
    requests: Vec<(ucs_status_ptr_t, Vec<u8>)>,
}

impl Worker {
    pub(super) fn new() -> Result<Self> {
        let ucx = Ucx::load()?;
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: u64::from(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP),
            ..ucp_params_t::default()
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: the parameters are as their mask says; no configuration is the environment's.
        ucx.check(unsafe { ucx.ucp_init(&raw const params, std::ptr::null(), &raw mut context) })?;
        let mut this = Self {
            ucx,
            context,
            worker: std::ptr::null_mut(),
            efd: -1,
            happened: NonNull::from(Box::leak(Box::<Happened>::default())),
            requests: Vec::new(),
        };
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: UCS_THREAD_MODE_SINGLE,
            ..ucp_worker_params_t::default()
        };
        // SAFETY: as above; the context is alive.
        ucx.check(unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut this.worker) })?;
        // SAFETY: the worker is alive; its context has the feature `WAKEUP`.
        ucx.check(unsafe { ucx.ucp_worker_get_efd(this.worker, &raw mut this.efd) })?;
        let handler = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: MESSAGE,
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_message),
            arg: this.happened.as_ptr().cast(),
        };
        // SAFETY: the worker is alive; what happened outlives it.
        ucx.check(unsafe { ucx.ucp_worker_set_am_recv_handler(this.worker, &raw const handler) })?;
        Ok(this)
    }

    pub(super) fn happened(&self) -> &Happened {
        // SAFETY: from a box that is freed when `self` is dropped; nobody has a mutable reference.
        unsafe { self.happened.as_ref() }
    }

    /// Lets UCX work; whether it did anything.
    pub(super) fn progress(&mut self) -> Result<bool> {
        // SAFETY: the worker is alive and this thread's, as in all of the following.
        let some = unsafe { self.ucx.ucp_worker_progress(self.worker) } > 0;
        let ucx = self.ucx;
        self.requests.retain(|(request, _)| {
            // SAFETY: the request is under way and not freed; when it has ended, it is freed and forgotten.
            unsafe {
                let under_way = ucx.ucp_request_check_status(*request) == UCS_INPROGRESS;
                if !under_way {
                    ucx.ucp_request_free(*request);
                }
                under_way
            }
        });
        let fetchable = std::mem::take(&mut *self.happened().fetchable.borrow_mut());
        for (what, len) in fetchable {
            self.fetch(what, len)?;
        }
        Ok(some)
    }

    /// Sleeps until there is something to do, or for this long.
    pub(super) fn sleep(&mut self, milliseconds: i64) {
        // SAFETY: as above.
        if unsafe { self.ucx.ucp_worker_arm(self.worker) } != UCS_OK {
            return;
        }
        // SAFETY: the worker's own descriptor, open as long as it lives.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.efd) };
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: milliseconds * 1_000_000,
        };
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time));
    }

    /// How many operations are under way.
    pub(super) fn under_way(&self) -> usize {
        self.requests.len()
    }

    /// An endpoint to there.
    pub(super) fn connect(&mut self, address: &SockAddr) -> Result<ucp_ep_h> {
        self.endpoint(ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR),
            flags: UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            sockaddr: address.as_ucs(),
            ..ucp_ep_params_t::default()
        })
    }

    /// An endpoint to somebody who knocked.
    pub(super) fn accept(&mut self, request: ucp_conn_request_h) -> Result<ucp_ep_h> {
        self.endpoint(ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_CONN_REQUEST),
            conn_request: request,
            ..ucp_ep_params_t::default()
        })
    }

    fn endpoint(&mut self, mut params: ucp_ep_params_t) -> Result<ucp_ep_h> {
        params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER);
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = ucp_err_handler_t {
            cb: Some(on_failure),
            arg: self.happened.as_ptr().cast(),
        };
        let mut ep = std::ptr::null_mut();
        // SAFETY: as above; the parameters are as their mask says.
        let status = unsafe {
            self.ucx
                .ucp_ep_create(self.worker, &raw const params, &raw mut ep)
        };
        self.ucx.check(status)?;
        Ok(ep)
    }

    /// Listens on this host, at any port that is free.
    pub(super) fn listen(&mut self) -> Result<(ucp_listener_h, u16)> {
        let at = SockAddr::new(([127, 0, 0, 1], 0).into());
        let params = ucp_listener_params_t {
            field_mask: u64::from(UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER),
            sockaddr: at.as_ucs(),
            conn_handler: ucp_listener_conn_handler_t {
                cb: Some(on_knock),
                arg: self.happened.as_ptr().cast(),
            },
            ..ucp_listener_params_t::default()
        };
        let mut listener = std::ptr::null_mut();
        let mut attr = ucp_listener_attr_t {
            field_mask: u64::from(UCP_LISTENER_ATTR_FIELD_SOCKADDR),
            ..ucp_listener_attr_t::default()
        };
        // SAFETY: as above; the fields of the mask are written.
        unsafe {
            self.ucx.check(self.ucx.ucp_listener_create(
                self.worker,
                &raw const params,
                &raw mut listener,
            ))?;
            self.ucx
                .check(self.ucx.ucp_listener_query(listener, &raw mut attr))?;
        }
        let address = socket_addr(&attr.sockaddr).ok_or("UCX listens at no address")?;
        Ok((listener, address.port()))
    }

    /// Listens no more.
    pub(super) fn hush(&mut self, listener: ucp_listener_h) {
        // SAFETY: made by `listen`, and used for the last time.
        unsafe { self.ucx.ucp_listener_destroy(listener) };
    }

    /// Sends a message.
    pub(super) fn send(&mut self, ep: ucp_ep_h, body: Vec<u8>) -> Result {
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
            flags: UCP_AM_SEND_FLAG_REPLY,
            cb: ucp_request_param_t__bindgen_ty_1 { send: Some(on_sent) },
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint is alive; the body stays where it is, on the heap, until the request has ended; there is no
        // header.
        let request = unsafe {
            self.ucx.ucp_am_send_nbx(
                ep,
                MESSAGE,
                std::ptr::null(),
                0,
                body.as_ptr().cast(),
                body.len(),
                &raw const params,
            )
        };
        self.begun(request, body)
    }

    fn fetch(&mut self, what: *mut c_void, len: usize) -> Result {
        let mut body = vec![0u8; len];
        let params = ucp_request_param_t::default();
        // SAFETY: `what` is of a message that was kept, and used for the first time; the body stays where it is, on the
        // heap, until the request has ended.
        let request = unsafe {
            self.ucx.ucp_am_recv_data_nbx(
                self.worker,
                what,
                body.as_mut_ptr().cast(),
                len,
                &raw const params,
            )
        };
        // Whoever is killed while it is fetched from leaves an error.
        let _ = self.begun(request, body);
        Ok(())
    }

    /// Closes an endpoint: by force, or when everything has arrived.
    pub(super) fn close(&mut self, ep: ucp_ep_h, by_force: bool) {
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_FLAGS,
            flags: if by_force { UCP_EP_CLOSE_FLAG_FORCE } else { 0 },
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint is alive and used for the last time.
        let request = unsafe { self.ucx.ucp_ep_close_nbx(ep, &raw const params) };
        let _ = self.begun(request, Vec::new());
    }

    fn begun(&mut self, request: ucs_status_ptr_t, memory: Vec<u8>) -> Result {
        if UCS_PTR_IS_PTR(request) {
            self.requests.push((request, memory));
            return Ok(());
        }
        Ok(self.ucx.check_ptr(request)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used for the last time, each in its turn.
        unsafe {
            if !self.worker.is_null() {
                self.ucx.ucp_worker_destroy(self.worker);
            }
            self.ucx.ucp_cleanup(self.context);
            drop(Box::from_raw(self.happened.as_ptr()));
        }
    }
}

/// # Safety
/// Called by UCX, with what happened as `arg`.
unsafe extern "C" fn on_message(
    arg: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: alive as long as the worker whose callback this is; the parameters are readable during the call.
    let (happened, param) = unsafe { (&*arg.cast::<Happened>(), &*param) };
    happened.messages.set(happened.messages.get() + 1);
    if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 {
        return UCS_OK;
    }
    happened.fetchable.borrow_mut().push((data, len));
    UCS_INPROGRESS
}

/// The worker asks for the status of its requests.
unsafe extern "C" fn on_sent(_request: *mut c_void, _status: ucs_status_t, _user_data: *mut c_void) {}

/// # Safety
/// As for [`on_message`].
unsafe extern "C" fn on_failure(arg: *mut c_void, ep: ucp_ep_h, _status: ucs_status_t) {
    // SAFETY: as for `on_message`.
    unsafe { &*arg.cast::<Happened>() }.failed.borrow_mut().push(ep);
}

/// # Safety
/// As for [`on_message`].
unsafe extern "C" fn on_knock(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: as for `on_message`.
    unsafe { &*arg.cast::<Happened>() }
        .knocks
        .borrow_mut()
        .push(request);
}
