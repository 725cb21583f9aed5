//! UCX as its users use it: a context and a worker of one thread, endpoints, and active messages that are received by a
//! callback. Everything that is not said here is UCX's default, or what the environment says (`UCX_TLS`, …).

pub(super) mod am;
pub(super) mod memory;
pub(super) mod put;

use std::ffi::c_void;
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use ucx_sys::*;

/// A context and a worker of it, of this thread.
pub(super) struct Worker {
    ucx: &'static Ucx,
    context: ucp_context_h,
    worker: ucp_worker_h,
}

impl Worker {
    /// `features` are those of `ucp_init`.
    pub(super) fn new(features: u32) -> Result<Rc<Self>> {
        let ucx = Ucx::load()?;
        let params = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: u64::from(features),
            ..ucp_params_t::default()
        };
        let mut context = std::ptr::null_mut();
        // SAFETY: the parameters are as their mask says; a null configuration is the environment's.
        let status = unsafe { ucx.ucp_init(&raw const params, std::ptr::null(), &raw mut context) };
        ucx.check(status).context("initialising UCX")?;
        let mut worker = Self {
            ucx,
            context,
            worker: std::ptr::null_mut(),
        };
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: UCS_THREAD_MODE_SINGLE,
            ..ucp_worker_params_t::default()
        };
        // SAFETY: as above; the context is alive.
        let status = unsafe { ucx.ucp_worker_create(context, &raw const params, &raw mut worker.worker) };
        ucx.check(status).context("making a worker of UCX")?;
        Ok(Rc::new(worker))
    }

    /// The address, as hexadecimal digits.
    pub(super) fn address(&self) -> Result<String> {
        let (mut address, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: the worker is alive; both are written.
        let status = unsafe {
            self.ucx
                .ucp_worker_get_address(self.worker, &raw mut address, &raw mut len)
        };
        self.ucx
            .check(status)
            .context("asking for the worker's address")?;
        // SAFETY: UCX wrote an address of that length, which stays until it is released below.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        let text = hexadecimal(bytes);
        // SAFETY: the worker's own, and used for the last time.
        unsafe { self.ucx.ucp_worker_release_address(self.worker, address) };
        Ok(text)
    }

    /// An endpoint to the worker of this address. With `BENCH_UCX_ERRORS=peer` it is told when the other one dies, as those of
    /// `ifunc-rt` are.
    pub(super) fn connect(self: &Rc<Self>, address: &str) -> Result<Endpoint> {
        let bytes = bytes(address)?;
        let mode = match std::env::var("BENCH_UCX_ERRORS").as_deref() {
            Ok("peer") => UCP_ERR_HANDLING_MODE_PEER,
            Ok(other) => bail!("BENCH_UCX_ERRORS is `peer`, or not there; not `{other}`"),
            Err(_) => UCP_ERR_HANDLING_MODE_NONE,
        };
        let params = ucp_ep_params_t {
            field_mask: u64::from(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE),
            address: bytes.as_ptr().cast(),
            err_mode: mode,
            ..ucp_ep_params_t::default()
        };
        let mut ep = std::ptr::null_mut();
        // SAFETY: the worker is alive; the parameters are as their mask says, the address is one of a worker of this run.
        let status = unsafe {
            self.ucx
                .ucp_ep_create(self.worker, &raw const params, &raw mut ep)
        };
        self.ucx.check(status).context("making an endpoint of UCX")?;
        Ok(Endpoint {
            worker: Rc::clone(self),
            ep,
        })
    }

    /// Lets UCX work: what has come is received, what is under way goes on. Whether anything happened.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        // SAFETY: the worker is alive and this thread's.
        unsafe { self.ucx.ucp_worker_progress(self.worker) != 0 }
    }

    /// What a function of UCX returned that may begin an operation. `Some`: it is under way.
    #[inline]
    fn request(self: &Rc<Self>, request: ucs_status_ptr_t, doing: &'static str) -> Result<Option<Request>> {
        if UCS_PTR_IS_PTR(request) {
            return Ok(Some(Request {
                worker: Rc::clone(self),
                request,
            }));
        }
        if UCS_PTR_IS_ERR(request) {
            self.ucx.check_ptr(request).context(doing)?;
        }
        Ok(None)
    }

    /// What begins after this at an endpoint happens after what began before it.
    pub(super) fn fence(&self) -> Result<()> {
        // SAFETY: the worker is alive and this thread's.
        let status = unsafe { self.ucx.ucp_worker_fence(self.worker) };
        self.ucx.check(status).context("a fence")
    }

    /// Asks for everything that began at any endpoint to have happened at the other end. `None`: it has.
    pub(super) fn flush(self: &Rc<Self>) -> Result<Option<Request>> {
        let params = ucp_request_param_t::default();
        // SAFETY: as above.
        let request = unsafe { self.ucx.ucp_worker_flush_nbx(self.worker, &raw const params) };
        self.request(request, "a flush")
    }

    /// Lends it to ifunc, with an id of active messages.
    ///
    /// # Safety
    /// Its context must have `UCP_FEATURE_AM`, and what is made of it must go before the worker.
    pub(super) unsafe fn lend(&self, am_id: u16) -> Result<ifunc_rt::ucx::Worker> {
        let options = ifunc_rt::ucx::WorkerOptions::new(am_id);
        // SAFETY: both are alive, of this process's UCX, and of this thread; the rest is the caller's promise.
        Ok(unsafe { ifunc_rt::ucx::Worker::from_raw(self.context, self.worker, options)? })
    }

    /// Readable when there may be something to do, once the worker is [armed](Self::arm). Its context needs
    /// `UCP_FEATURE_WAKEUP`.
    pub(super) fn bell(&self) -> Result<BorrowedFd<'_>> {
        let mut fd = -1;
        // SAFETY: the worker is alive and this thread's; the descriptor is written.
        let status = unsafe { self.ucx.ucp_worker_get_efd(self.worker, &raw mut fd) };
        self.ucx
            .check(status)
            .context("asking for the worker's descriptor")?;
        // SAFETY: the worker's own, and open as long as it lives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Has the bell rung by what happens next. `false`: something has happened.
    pub(super) fn arm(&self) -> Result<bool> {
        // SAFETY: the worker is alive and this thread's.
        let status = unsafe { self.ucx.ucp_worker_arm(self.worker) };
        if status == UCS_ERR_BUSY {
            return Ok(false);
        }
        self.ucx.check(status).context("arming a worker")?;
        Ok(true)
    }

    /// Has active messages of this id received by `handler`.
    pub(super) fn receive<H: Handler>(self: &Rc<Self>, id: u16, handler: Rc<H>) -> Result<()> {
        // It stays as long as the process: so does what UCX has of it.
        let receiver = Box::leak(Box::new(Receiver {
            worker: Rc::clone(self),
            handler,
            buffers: Buffers::default(),
        }));
        let handler = ucp_am_handler_param_t {
            field_mask: u64::from(
                UCP_AM_HANDLER_PARAM_FIELD_ID
                    | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                    | UCP_AM_HANDLER_PARAM_FIELD_CB
                    | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            ),
            id: id.into(),
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_message::<H>),
            arg: (&raw const *receiver).cast_mut().cast(),
        };
        // SAFETY: the worker is alive and this thread's; the receiver is never freed, and only referred to as shared.
        let status = unsafe {
            self.ucx
                .ucp_worker_set_am_recv_handler(self.worker, &raw const handler)
        };
        self.ucx.check(status).context("registering an active message")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and this is their last use: endpoints and requests hold the worker.
        unsafe {
            if !self.worker.is_null() {
                self.ucx.ucp_worker_destroy(self.worker);
            }
            self.ucx.ucp_cleanup(self.context);
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    ensure!(rest.is_empty(), "an odd number of hexadecimal digits");
    pairs
        .iter()
        .map(|pair| {
            let pair = std::str::from_utf8(pair).context("not hexadecimal digits")?;
            u8::from_str_radix(pair, 16).context("not hexadecimal digits")
        })
        .collect()
}

/// What active messages are received by.
pub(super) trait Handler: 'static {
    /// One came. `payload` is read in place where UCX has it, or fetched ahead of this.
    fn message(&self, payload: &[u8]);
}

/// What UCX's callbacks have of a handler.
struct Receiver<H> {
    worker: Rc<Worker>,
    handler: Rc<H>,
    buffers: Buffers,
}

/// Memory for messages that are fetched: the one used last, which is in the caches, is used next.
#[derive(Default)]
struct Buffers(std::cell::RefCell<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.0.borrow_mut().pop().unwrap_or_default();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer
    }

    fn give(&self, buffer: Vec<u8>) {
        self.0.borrow_mut().push(buffer);
    }
}

/// A message that is being fetched.
struct Fetch<H: 'static> {
    receiver: &'static Receiver<H>,
    buffer: Vec<u8>,
    len: usize,
}

impl<H: Handler> Fetch<H> {
    fn done(self) {
        self.receiver.handler.message(&self.buffer[..self.len]);
        self.receiver.buffers.give(self.buffer);
    }
}

/// `ucp_am_recv_callback_t`.
///
/// # Safety
/// Called by UCX, with a [`Receiver`] that is never freed as `arg`.
unsafe extern "C" fn on_message<H: Handler>(
    arg: *mut c_void,
    _header: *const c_void,
    _header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: as `receive` registered it; the parameters are readable during the call.
    let (receiver, param): (&'static Receiver<H>, _) = unsafe { (&*arg.cast(), &*param) };
    if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 {
        let payload = if len == 0 {
            &[]
        } else {
            // SAFETY: the data are readable for their length during the call.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
        };
        receiver.handler.message(payload);
        return UCS_OK;
    }
    let mut buffer = receiver.buffers.take(len);
    let into = buffer.as_mut_ptr();
    let fetch = Box::into_raw(Box::new(Fetch {
        receiver,
        buffer,
        len,
    }));
    let params = ucp_request_param_t {
        op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        cb: ucp_request_param_t__bindgen_ty_1 {
            recv_am: Some(on_fetched::<H>),
        },
        user_data: fetch.cast(),
        ..ucp_request_param_t::default()
    };
    let Worker { ucx, worker, .. } = *receiver.worker;
    // SAFETY: the worker is alive and this thread's, and UCX allows it in this callback; the buffer has room for `len` bytes and
    // stays where it is until the operation has ended.
    let request = unsafe { ucx.ucp_am_recv_data_nbx(worker, data, into.cast(), len, &raw const params) };
    if !UCS_PTR_IS_PTR(request) {
        // SAFETY: made from a box above; UCX is done with it and will not call back.
        let fetch = unsafe { Box::from_raw(fetch) };
        match ucx.check_ptr(request) {
            Ok(()) => fetch.done(),
            // The message is missing from what was received: the run fails.
            Err(status) => eprintln!("UCX does not fetch a message: {status}"),
        }
    }
    UCS_INPROGRESS
}

/// `ucp_am_recv_data_nbx_callback_t`.
///
/// # Safety
/// Called by UCX, with a [`Fetch`] from a box as `user_data`.
unsafe extern "C" fn on_fetched<H: Handler>(
    request: *mut c_void,
    status: ucs_status_t,
    _length: usize,
    user_data: *mut c_void,
) {
    // SAFETY: as `on_message` passed it; UCX calls back once.
    let fetch = unsafe { Box::from_raw(user_data.cast::<Fetch<H>>()) };
    let ucx = fetch.receiver.worker.ucx;
    match ucx.check(status) {
        Ok(()) => fetch.done(),
        Err(status) => eprintln!("UCX did not fetch a message: {status}"),
    }
    // SAFETY: the request is over, and this is its last use.
    unsafe { ucx.ucp_request_free(request) };
}

/// An endpoint: the way to another worker.
pub(super) struct Endpoint {
    worker: Rc<Worker>,
    ep: ucp_ep_h,
}

impl Endpoint {
    /// Says hello to the target on the worker at its other end.
    pub(super) fn call(&self, lent: &ifunc_rt::ucx::Worker) -> Result<ifunc_rt::ucx::Connecting> {
        // SAFETY: of the worker that was lent, and kept until the source is gone: it is the last field of its role.
        Ok(unsafe { lent.call(self.ep, ifunc_rt::SourceOptions::default())? })
    }

    /// Sends an active message. `Some`: it is under way.
    ///
    /// # Safety
    /// The payload must not change, and stay where it is, until the request is [done](Request::is_done).
    #[inline]
    pub(super) unsafe fn send(&self, id: u16, payload: &[u8]) -> Result<Option<Request>> {
        let params = ucp_request_param_t::default();
        // SAFETY: the endpoint is alive, its worker this thread's; the payload is the caller's promise.
        let request = unsafe {
            self.worker.ucx.ucp_am_send_nbx(
                self.ep,
                id.into(),
                std::ptr::null(),
                0,
                payload.as_ptr().cast(),
                payload.len(),
                &raw const params,
            )
        };
        self.request(request, "sending an active message")
    }

    /// As [`Worker::request`].
    #[inline]
    fn request(&self, request: ucs_status_ptr_t, doing: &'static str) -> Result<Option<Request>> {
        self.worker.request(request, doing)
    }

    /// The transports and devices in use, by UCX's own account.
    pub(super) fn carried_by(&self) -> String {
        // SAFETY: the endpoint is alive, and its worker this thread's.
        let info = unsafe { self.worker.ucx.endpoint_info(self.ep) };
        lanes(&info).join(" ")
    }
}

/// An operation that is under way.
pub(super) struct Request {
    worker: Rc<Worker>,
    request: *mut c_void,
}

impl Request {
    /// Whether it has ended.
    ///
    /// # Errors
    /// It failed.
    #[inline]
    pub(super) fn is_done(&self) -> Result<bool> {
        let ucx = self.worker.ucx;
        // SAFETY: the request is alive until this is dropped.
        let status = unsafe { ucx.ucp_request_check_status(self.request) };
        ucx.check(status).context("what UCX had under way")?;
        Ok(status != UCS_INPROGRESS)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: this is its last use; UCX frees it when it is over.
        unsafe { self.worker.ucx.ucp_request_free(self.request) };
    }
}
