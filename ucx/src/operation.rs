//! The operations of a worker, how one begins, and the request of one that is under way.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::{BitOr, Range};
use std::sync::Arc;

use ucx_sys::{
    Status, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_REPLY, UCP_ATOMIC_OP_ADD, UCP_EP_CLOSE_FLAG_FORCE,
    UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_FLAGS,
    UCP_OP_ATTR_FIELD_USER_DATA, UCS_ERR_UNSUPPORTED, UCS_INPROGRESS, UCS_OK, UCS_PTR_IS_PTR, UCS_STATUS_PTR,
    ucp_dt_make_contig, ucp_request_param_t, ucp_request_param_t__bindgen_ty_1, ucs_status_ptr_t,
};

use crate::buffer::{Buffer, Bytes, Node, OperationId};
use crate::callbacks::{on_fetched, on_sent, on_tag_received};
use crate::endpoint::Endpoint;
use crate::handler::Handler;
use crate::inner::Inner;
use crate::memory::Remote;
use crate::message::{Kept, Rendezvous};
use crate::shared::{Deferred, Handle, Shared};

/// How an active message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// The receiver gets the endpoint that leads back: [`Message::sender`](crate::Message::sender).
    pub const REPLY: Self = Self(UCP_AM_SEND_FLAG_REPLY);
    /// The data are sent with the message; the receiver does not fetch them.
    pub const EAGER: Self = Self(UCP_AM_SEND_FLAG_EAGER);
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An operation of a worker. Ranges are of the buffer, which the operation reads, or [writes](Self::writes).
#[derive(Debug)]
pub enum Operation<'a> {
    /// Sends an active message.
    Message {
        /// To where.
        endpoint: &'a Endpoint,
        /// The id that the peer [receives](crate::Worker::receive) it by.
        id: u16,
        /// The header, which is short.
        header: Range<usize>,
        /// The data.
        data: Range<usize>,
        /// How.
        flags: Flags,
    },
    /// Fetches the data of an active message; as many as the range has.
    Fetch {
        /// The message.
        message: Rendezvous,
        /// Where they are put.
        data: Range<usize>,
    },
    /// Sends a message that the peer matches by its tag.
    SendTagged {
        /// To where.
        endpoint: &'a Endpoint,
        /// The tag.
        tag: u64,
        /// The message.
        data: Range<usize>,
    },
    /// Receives a message whose tag agrees with `tag` in the bits of `mask`.
    ReceiveTagged {
        /// The tag.
        tag: u64,
        /// The bits that matter.
        mask: u64,
        /// Where the message is put.
        data: Range<usize>,
    },
    /// Writes a peer's memory. The bytes land in any order; what follows a [fence](Operations::fence) lands later.
    Put {
        /// To where.
        to: Remote<'a>,
        /// What is written.
        data: Range<usize>,
    },
    /// Reads a peer's memory.
    Get {
        /// From where.
        from: Remote<'a>,
        /// Where it is put.
        data: Range<usize>,
    },
    /// Adds a word of 64 bits to one of a peer's memory.
    Add {
        /// To where: at a multiple of 8.
        to: Remote<'a>,
        /// What is added: 8 bytes.
        operand: Range<usize>,
    },
    /// Ends when everything that was begun at an endpoint before has happened at the peer.
    Flush {
        /// The endpoint.
        endpoint: &'a Endpoint,
    },
    /// As `Flush`, for all endpoints of the worker.
    FlushWorker,
    /// Closes an endpoint.
    Close {
        /// The endpoint. It is taken when the operation begins, and stays where UCX is not asked. `None`: the operation ends at once.
        endpoint: &'a mut Option<Endpoint>,
        /// Without asking the peer; what was not sent is dropped.
        force: bool,
    },
}

impl Operation<'_> {
    /// Whether it writes its buffer, and so cannot have static [`Bytes`].
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Self::Fetch { .. } | Self::ReceiveTagged { .. } | Self::Get { .. }
        )
    }
}

/// An operation that has ended at once, with its buffer, or that is under way.
#[derive(Debug)]
#[must_use = "the buffer comes back with it"]
pub enum Begun<B, U> {
    /// It has ended, and this is its buffer.
    Done(B),
    /// It is under way.
    UnderWay(U),
}

/// An operation that was [started](Operations::start): the program asks about it by its request.
pub type Started = Begun<Bytes, Request>;

/// An operation that was [posted](Operations::post): if it is under way, the handler is called when it ends.
pub type Posted<T> = Begun<Buffer<T>, OperationId>;

pub(crate) mod sealed {
    use super::{Handler, Inner};

    /// `UCS_THREAD_MODE_…` of a worker.
    pub trait Mode {
        #[doc(hidden)]
        const MODE: ucx_sys::ucs_thread_mode_t;
    }

    /// Proof that this thread holds the worker.
    pub trait Token<H: Handler> {
        #[doc(hidden)]
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn inner(&self) -> &Inner<H>;

        #[doc(hidden)]
        fn may_begin(&self) -> bool {
            true
        }
    }
}

/// What a token of a worker allows: [`Worker`](crate::Worker) between calls of the handler, [`Callback`](crate::Callback) in
/// them.
pub trait Operations<H: Handler>: sealed::Token<H> {
    /// Begins an operation that the program asks about by its [`Request`].
    ///
    /// # Errors
    /// UCX did not begin it.
    ///
    /// # Panics
    /// If the operation [writes](Operation::writes) and the bytes are static.
    #[inline]
    fn start(&mut self, operation: Operation<'_>, bytes: impl Into<Bytes>) -> Result<Started, Status> {
        let mut bytes = bytes.into();
        let len = bytes.len();
        let at = match &mut bytes {
            Bytes::Owned(bytes) => bytes.as_mut_ptr(),
            Bytes::Static(bytes) => {
                assert!(!operation.writes(), "static bytes are to be written");
                bytes.as_ptr().cast_mut()
            }
        };
        may_begin(self)?;
        let inner = self.inner();
        let bytes = Held(MaybeUninit::new(bytes));
        // SAFETY: the bytes stay where they are, and are the request's until the operation has ended, or it has ended here. They are
        // writable if they are written.
        let request = unsafe { issue(inner, operation, at, len, None) };
        inner.resume();
        if UCS_PTR_IS_PTR(request) {
            return Ok(Begun::UnderWay(Request {
                raw: Handle(request),
                bytes: Some(bytes),
                shared: Arc::clone(&inner.shared),
            }));
        }
        inner.ucx().check_ptr(request)?;
        Ok(Begun::Done(bytes.take()))
    }

    /// Begins an operation that ends with a call of [`Handler::completed`].
    ///
    /// # Errors
    /// UCX did not begin it.
    #[inline(always)]
    fn post(&mut self, operation: Operation<'_>, buffer: Buffer<H::Tag>) -> Result<Posted<H::Tag>, Status> {
        may_begin(self)?;
        let inner = self.inner();
        let mut cb = ucp_request_param_t__bindgen_ty_1 {
            send: Some(on_sent::<H>),
        };
        match &operation {
            Operation::Fetch { .. } => cb.recv_am = Some(on_fetched::<H>),
            Operation::ReceiveTagged { .. } => cb.recv = Some(on_tag_received::<H>),
            _ => {}
        }
        let id = buffer.id();
        let node: *mut Node<H::Tag> = buffer.into_raw();
        let has_ended = Cell::new(false);
        // SAFETY: the node is from a buffer, and used by nothing else. Its memory is writable, and stays where it is until the
        // operation has ended: `completed` makes a buffer of the node again, or the end of the worker does. UCX may end an operation
        // inside of the call that begins it, or on another thread before the node is linked: then the node is not used any more, and
        // callbacks of other threads pass the gate before they say so. An operation that UCX does not return calls nothing back.
        unsafe {
            (*node).owner = Handle(std::ptr::from_ref(inner).cast_mut().cast());
            (*node).beginning = Handle((&raw const has_ended).cast_mut());
            let (at, len) = Node::memory(node);
            let request = issue(inner, operation, at, len, Some((cb, node.cast())));
            if UCS_PTR_IS_PTR(request) {
                inner.gated(|| {
                    if !has_ended.get() {
                        inner.link(node);
                    }
                });
                inner.resume();
                return Ok(Begun::UnderWay(id));
            }
            (*node).beginning = Handle(std::ptr::null_mut());
            let buffer = Buffer::from_raw(node);
            inner.resume();
            inner.ucx().check_ptr(request)?;
            Ok(Begun::Done(buffer))
        }
    }

    /// Orders operations of an endpoint: those that begin later happen at the peer after those that began before.
    ///
    /// # Errors
    /// UCX refused.
    #[inline]
    fn fence(&mut self) -> Result<(), Status> {
        let inner = self.inner();
        inner.is_open()?;
        // SAFETY: the worker is alive, and this thread's by the token.
        inner.check(unsafe { inner.ucx().ucp_worker_fence(inner.raw) })
    }

    /// Gives the memory of a message back to UCX.
    #[inline]
    fn release(&mut self, kept: Kept) {
        self.inner().release(kept.0);
    }

    /// Leaves the data of a message unread.
    fn discard(&mut self, message: Rendezvous) {
        self.inner().release(message.0);
    }
}

/// Whether an operation may begin.
#[inline]
fn may_begin<H: Handler>(token: &(impl sealed::Token<H> + ?Sized)) -> Result<(), Status> {
    if !token.may_begin() {
        return Err(token.inner().ucx().status(UCS_ERR_UNSUPPORTED));
    }
    token.inner().is_open()
}

/// A part of the buffer of `len` bytes at `at`, and how long it is.
#[inline(always)]
fn part(at: *mut u8, len: usize, range: Range<usize>) -> (*mut u8, usize) {
    assert!(
        range.start <= range.end && range.end <= len,
        "{range:?} of a buffer of {len} bytes"
    );
    (at.wrapping_add(range.start), range.len())
}

/// Gives an operation to UCX.
///
/// # Safety
/// `len` bytes at `at` are readable, and if the operation writes, writable, until it has ended. The caller has the worker's
/// token. `on_end` is the callback of the operation's kind, and what it is called with; `None`: the program asks.
#[inline(always)]
unsafe fn issue<H: Handler>(
    inner: &Inner<H>,
    operation: Operation<'_>,
    at: *mut u8,
    len: usize,
    on_end: Option<(ucp_request_param_t__bindgen_ty_1, *mut c_void)>,
) -> ucs_status_ptr_t {
    // Filled here, not by the caller: a flag that is added to what lies in memory is a store of one byte, and UCX, which reads four, would wait for
    // it. Operations have nothing to drop: one that had would lie in memory, too, and its kind would be looked up here.
    let mut params = ucp_request_param_t::default();
    if let Some((cb, user_data)) = on_end {
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        (params.cb, params.user_data) = (cb, user_data);
    }
    let (ucx, worker) = (inner.ucx(), inner.raw);
    let part = |range: Range<usize>| part(at, len, range);
    // SAFETY: endpoints and keys are alive, as they exist, and of this worker, and the key is of the endpoint, by `of`; ranges lie
    // in the buffer, by `part`. The rest is the caller's promise.
    unsafe {
        match operation {
            Operation::Message {
                endpoint,
                id,
                header,
                data,
                flags,
            } => {
                let ep = endpoint.of(inner);
                let ((header, header_len), (data, len)) = (part(header), part(data));
                if flags != Flags::default() {
                    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                    params.flags = flags.0;
                }
                let (id, header, data) = (id.into(), header.cast(), data.cast());
                ucx.ucp_am_send_nbx(ep, id, header, header_len, data, len, &raw const params)
            }
            Operation::Fetch { message, data } => {
                inner.check_owner("data of a message are", message.0.worker);
                let (to, len) = part(data);
                ucx.ucp_am_recv_data_nbx(worker, message.0.data.0, to.cast(), len, &raw const params)
            }
            Operation::SendTagged { endpoint, tag, data } => {
                let (ep, (data, len)) = (endpoint.of(inner), part(data));
                ucx.ucp_tag_send_nbx(ep, data.cast(), len, tag, &raw const params)
            }
            Operation::ReceiveTagged { tag, mask, data } => {
                let (to, len) = part(data);
                ucx.ucp_tag_recv_nbx(worker, to.cast(), len, tag, mask, &raw const params)
            }
            Operation::Put { to, data } => {
                let (data, len) = part(data);
                let (ep, key, to) = to.of(inner, len);
                ucx.ucp_put_nbx(ep, data.cast(), len, to, key, &raw const params)
            }
            Operation::Get { from, data } => {
                let (to, len) = part(data);
                let (ep, key, from) = from.of(inner, len);
                ucx.ucp_get_nbx(ep, to.cast(), len, from, key, &raw const params)
            }
            Operation::Add { to, operand } => {
                let (operand, len) = part(operand);
                assert!(
                    len == 8 && to.offset.is_multiple_of(8),
                    "a word of 8 bytes is added"
                );
                let (ep, key, to) = to.of(inner, len);
                params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
                params.datatype = ucp_dt_make_contig(8);
                let operand = operand.cast();
                ucx.ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, operand, 1, to, key, &raw const params)
            }
            Operation::Flush { endpoint } => ucx.ucp_ep_flush_nbx(endpoint.of(inner), &raw const params),
            Operation::FlushWorker => ucx.ucp_worker_flush_nbx(worker, &raw const params),
            Operation::Close { endpoint, force } => {
                if let Some(endpoint) = endpoint.as_ref() {
                    endpoint.of(inner);
                }
                let Some(ep) = endpoint.take().and_then(Endpoint::take) else {
                    return UCS_STATUS_PTR(UCS_OK);
                };
                inner.endpoints.set(inner.endpoints.get() - 1);
                params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                params.flags = if force { UCP_EP_CLOSE_FLAG_FORCE } else { 0 };
                ucx.ucp_ep_close_nbx(ep, &raw const params)
            }
        }
    }
}

/// An operation that is under way, and the bytes that it uses. If it is dropped, the worker keeps the bytes until the operation
/// has ended.
#[derive(Debug)]
#[must_use = "the bytes come back by `finish`"]
pub struct Request {
    raw: Handle<c_void>,
    /// `None` once the request is finished.
    bytes: Option<Held>,
    shared: Arc<Shared>,
}

/// Bytes that UCX may use. In `MaybeUninit` the compiler assumes nothing about what they contain.
#[derive(Debug)]
pub(crate) struct Held(MaybeUninit<Bytes>);

impl Held {
    #[inline]
    fn take(self) -> Bytes {
        let held = std::mem::ManuallyDrop::new(self);
        // SAFETY: initialised, and not dropped.
        unsafe { held.0.assume_init_read() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: initialised, and dropped once.
        unsafe { self.0.assume_init_drop() };
    }
}

impl Request {
    /// What UCX has it as, for the worker that it is of.
    fn status<H: Handler>(&self, inner: &Inner<H>) -> i8 {
        inner.check_owner("a request is", self.shared.serial);
        // SAFETY: a request of this worker that was not freed, by the check above.
        unsafe { inner.ucx().ucp_request_check_status(self.raw.0) }
    }

    /// Whether the operation has ended.
    #[inline]
    pub fn is_done<H: Handler>(&self, worker: &impl Operations<H>) -> bool {
        self.status(worker.inner()) != UCS_INPROGRESS
    }

    /// The bytes, and the result of the operation.
    ///
    /// # Errors
    /// The request: the operation is under way.
    pub fn finish<H: Handler>(
        mut self,
        worker: &mut impl Operations<H>,
    ) -> Result<(Bytes, Result<(), Status>), Self> {
        let inner = worker.inner();
        let status = self.status(inner);
        match self.bytes.take_if(|_| status != UCS_INPROGRESS) {
            Some(bytes) => {
                // SAFETY: the operation has ended, and this is the request's last use.
                unsafe { inner.ucx().ucp_request_free(self.raw.0) };
                Ok((bytes.take(), inner.check(status)))
            }
            None => Err(self),
        }
    }

    /// Asks UCX to end the operation, which then ends with an error. Only a receive by tag is certain to end.
    pub fn cancel<H: Handler>(&self, worker: &mut impl Operations<H>) {
        let inner = worker.inner();
        inner.check_owner("a request is", self.shared.serial);
        // SAFETY: a request of this worker that was not freed.
        unsafe { inner.ucx().ucp_request_cancel(inner.raw, self.raw.0) };
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.shared.defer(Deferred::Request(Handle(self.raw.0), bytes));
        }
    }
}
