//! What a worker can be told to do, and how it is begun.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{BitOr, Range};

use ucx_sys::{
    Status, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_REPLY, UCP_ATOMIC_OP_ADD, UCP_EP_CLOSE_FLAG_FORCE,
    UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_FLAGS,
    UCP_OP_ATTR_FIELD_USER_DATA, UCS_ERR_UNSUPPORTED, UCS_OK, UCS_PTR_IS_PTR, UCS_STATUS_PTR,
    ucp_dt_make_contig, ucp_request_param_t, ucp_request_param_t__bindgen_ty_1, ucs_status_ptr_t,
};

use crate::buffer::{Buffer, Node, OperationId};
use crate::bytes::{StableBytes, StableBytesMut};
use crate::callbacks::{on_fetched, on_sent, on_tag_received};
use crate::endpoint::Endpoint;
use crate::handler::Handler;
use crate::inner::Inner;
use crate::memory::RemoteMemory;
use crate::message::{Kept, Rendezvous};
use crate::request::Request;

/// How an active message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// The receiver is told the endpoint that leads back: [`Message::sender`](crate::Message::sender).
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

/// An operation that reads its buffer, or has no use for one. Ranges are of the buffer.
#[derive(Debug)]
pub enum Outgoing<'a> {
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
    /// Sends a message that the peer matches by its tag.
    Tagged {
        /// To where.
        endpoint: &'a Endpoint,
        /// The tag.
        tag: u64,
        /// The message.
        data: Range<usize>,
    },
    /// Writes a peer's memory. The bytes land in any order; what follows a [fence](Operations::fence) lands later.
    Put {
        /// To where.
        endpoint: &'a Endpoint,
        /// The memory.
        memory: &'a RemoteMemory,
        /// Where in the memory.
        offset: usize,
        /// What is written.
        data: Range<usize>,
    },
    /// Adds a word of 64 bits to one of a peer's memory.
    Add {
        /// To where.
        endpoint: &'a Endpoint,
        /// The memory.
        memory: &'a RemoteMemory,
        /// Where in the memory: a multiple of 8.
        offset: usize,
        /// What is added: 8 bytes.
        operand: Range<usize>,
    },
    /// Ends when everything that was begun at an endpoint before has happened at the peer.
    Flush {
        /// Which.
        endpoint: &'a Endpoint,
    },
    /// As `Flush`, for all endpoints of the worker.
    FlushWorker,
    /// Closes an endpoint.
    Close {
        /// Which.
        endpoint: Endpoint,
        /// Without asking the peer; what was not sent is dropped.
        force: bool,
    },
}

/// An operation that writes its buffer. Ranges are of the buffer.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Fetches the data of an active message; as many as the range has.
    Fetch {
        /// Whose data.
        message: Rendezvous,
        /// Where they are put.
        data: Range<usize>,
    },
    /// Reads a peer's memory.
    Get {
        /// From where.
        endpoint: &'a Endpoint,
        /// The memory.
        memory: &'a RemoteMemory,
        /// Where in the memory.
        offset: usize,
        /// Where it is put.
        data: Range<usize>,
    },
    /// Receives a message whose tag agrees with `tag` in the bits of `mask`.
    Tagged {
        /// The tag.
        tag: u64,
        /// The bits that matter.
        mask: u64,
        /// Where the message is put.
        data: Range<usize>,
    },
}

/// Any operation.
#[derive(Debug)]
pub enum Operation<'a> {
    /// It reads its buffer.
    Outgoing(Outgoing<'a>),
    /// It writes its buffer.
    Incoming(Incoming<'a>),
}

impl<'a> From<Outgoing<'a>> for Operation<'a> {
    fn from(operation: Outgoing<'a>) -> Self {
        Self::Outgoing(operation)
    }
}

impl<'a> From<Incoming<'a>> for Operation<'a> {
    fn from(operation: Incoming<'a>) -> Self {
        Self::Incoming(operation)
    }
}

/// An operation that was [started](Operations::start).
#[derive(Debug)]
#[must_use = "the buffer comes back with it"]
pub enum Started<B: StableBytes> {
    /// It has ended, and this is its buffer.
    Done(B),
    /// It is under way.
    UnderWay(Request<B>),
}

/// An operation that was [posted](Operations::post).
#[derive(Debug)]
#[must_use = "the buffer comes back with it"]
pub enum Posted<T> {
    /// It has ended, and this is its buffer. The handler is not called.
    Done(Buffer<T>),
    /// It is under way. The handler is called when it ends.
    UnderWay(OperationId),
}

/// An operation that did not begin, and its buffer.
pub struct Failed<B> {
    /// Why.
    pub status: Status,
    /// The buffer.
    pub buffer: B,
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

pub(crate) mod sealed {
    use super::{Handler, Inner};

    /// What proves that this thread holds the worker.
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
    #[inline]
    fn start<B: StableBytes>(&mut self, operation: Outgoing<'_>, buffer: B) -> Result<Started<B>, Failed<B>> {
        let (at, len) = (buffer.as_ptr().cast_mut(), buffer.len());
        // SAFETY: the buffer is readable by the promise of its trait, and is not written.
        unsafe { start(self, operation.into(), buffer, at, len) }
    }

    /// As [`start`](Self::start), of an operation that writes its buffer.
    ///
    /// # Errors
    /// UCX did not begin it.
    #[inline]
    fn start_receiving<B: StableBytesMut>(
        &mut self,
        operation: Incoming<'_>,
        mut buffer: B,
    ) -> Result<Started<B>, Failed<B>> {
        let (at, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is writable by the promise of its trait.
        unsafe { start(self, operation.into(), buffer, at, len) }
    }

    /// Begins an operation that ends with a call of [`Handler::completed`].
    ///
    /// # Errors
    /// UCX did not begin it.
    #[inline]
    fn post<'a>(
        &mut self,
        operation: impl Into<Operation<'a>>,
        buffer: Buffer<H::Tag>,
    ) -> Result<Posted<H::Tag>, Failed<Buffer<H::Tag>>> {
        let may_begin = self.may_begin();
        let inner = self.inner();
        if let Err(status) = may_begin_on(inner, may_begin) {
            return Err(Failed { status, buffer });
        }
        let operation = operation.into();
        let cb = match &operation {
            Operation::Incoming(Incoming::Fetch { .. }) => ucp_request_param_t__bindgen_ty_1 {
                recv_am: Some(on_fetched::<H>),
            },
            Operation::Incoming(Incoming::Tagged { .. }) => ucp_request_param_t__bindgen_ty_1 {
                recv: Some(on_tag_received::<H>),
            },
            _ => ucp_request_param_t__bindgen_ty_1 {
                send: Some(on_sent::<H>),
            },
        };
        let id = buffer.id();
        let node: *mut Node<H::Tag> = buffer.into_raw();
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            cb,
            user_data: node.cast(),
            ..ucp_request_param_t::default()
        };
        // SAFETY: the node is from a buffer, and used by nothing else. Its memory is writable, and stays where it is until the
        // operation has ended: `completed` makes a buffer of the node again, or the end of the worker does. The node is
        // linked before UCX has it: UCX may end an operation inside of the call that begins it.
        unsafe {
            (*node).owner = std::ptr::from_ref(inner).cast();
            let (at, len) = Node::memory(node);
            {
                let _gate = inner.gate();
                inner.link(node);
            }
            let request = issue(inner, operation, at, len, params);
            if UCS_PTR_IS_PTR(request) {
                inner.resume();
                return Ok(Posted::UnderWay(id));
            }
            {
                let _gate = inner.gate();
                inner.unlink(node);
            }
            let buffer = Buffer::from_raw(node);
            inner.resume();
            match inner.ucx().check_ptr(request) {
                Ok(()) => Ok(Posted::Done(buffer)),
                Err(status) => Err(Failed { status, buffer }),
            }
        }
    }

    /// What begins after this at an endpoint happens at the peer after what began before.
    ///
    /// # Errors
    /// UCX refused.
    #[inline]
    fn fence(&mut self) -> Result<(), Status> {
        let inner = self.inner();
        inner.is_open()?;
        // SAFETY: the worker is alive, and this thread's by the token.
        let status = unsafe { inner.ucx().ucp_worker_fence(inner.raw) };
        inner.ucx().check(status)
    }

    /// Gives the memory of a message back to UCX.
    #[inline]
    fn release(&mut self, kept: Kept) {
        release_data(self.inner(), kept.worker, kept.data);
    }

    /// Does without the data of a message.
    fn discard(&mut self, message: Rendezvous) {
        release_data(self.inner(), message.worker, message.data);
    }
}

#[inline]
fn release_data<H: Handler>(inner: &Inner<H>, worker: u64, data: *mut std::ffi::c_void) {
    assert!(
        worker == inner.shared.serial,
        "data are given back to another worker than their own"
    );
    if !inner.closed.get() {
        // SAFETY: of a message that this worker's callback kept, and used for the last time.
        unsafe { inner.ucx().ucp_am_data_release(inner.raw, data) };
    }
}

#[inline]
fn may_begin_on<H: Handler>(inner: &Inner<H>, may_begin: bool) -> Result<(), Status> {
    if !may_begin {
        return Err(inner.ucx().status(UCS_ERR_UNSUPPORTED));
    }
    inner.is_open()
}

/// # Safety
/// The buffer's memory is `len` bytes at `at`, readable, and if the operation is incoming, writable.
#[inline]
unsafe fn start<H: Handler, B: StableBytes>(
    token: &mut (impl sealed::Token<H> + ?Sized),
    operation: Operation<'_>,
    buffer: B,
    at: *mut u8,
    len: usize,
) -> Result<Started<B>, Failed<B>> {
    let may_begin = token.may_begin();
    let inner = token.inner();
    if let Err(status) = may_begin_on(inner, may_begin) {
        return Err(Failed { status, buffer });
    }
    let buffer = MaybeUninit::new(buffer);
    // SAFETY: the buffer is the request's until the operation has ended, or has ended here.
    unsafe {
        let request = issue(inner, operation, at, len, ucp_request_param_t::default());
        inner.resume();
        if UCS_PTR_IS_PTR(request) {
            return Ok(Started::UnderWay(Request::new(request, buffer, &inner.shared)));
        }
        let buffer = buffer.assume_init();
        match inner.ucx().check_ptr(request) {
            Ok(()) => Ok(Started::Done(buffer)),
            Err(status) => Err(Failed { status, buffer }),
        }
    }
}

/// Gives an operation to UCX.
///
/// # Safety
/// `len` bytes at `at` are readable, and if the operation is incoming, writable, until it has ended. The caller has the worker's
/// token. What `params` says is as UCX wants it.
#[inline]
unsafe fn issue<H: Handler>(
    inner: &Inner<H>,
    operation: Operation<'_>,
    at: *mut u8,
    len: usize,
    mut params: ucp_request_param_t,
) -> ucs_status_ptr_t {
    let (ucx, worker) = (inner.ucx(), inner.raw);
    let part = |range: Range<usize>| {
        assert!(
            range.start <= range.end && range.end <= len,
            "{range:?} of a buffer of {len} bytes"
        );
        (at.wrapping_add(range.start), range.len())
    };
    // SAFETY: endpoints and keys are alive, as they exist, and of this worker, by `of`; the key is of the endpoint, by `at`; ranges lie
    // in the buffer, by `part`. The rest is the caller's promise.
    unsafe {
        match operation {
            Operation::Outgoing(Outgoing::Message {
                endpoint,
                id,
                header,
                data,
                flags,
            }) => {
                let ep = endpoint.of(inner);
                let ((header, header_len), (data, data_len)) = (part(header), part(data));
                if flags != Flags::default() {
                    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                    params.flags = flags.0;
                }
                ucx.ucp_am_send_nbx(
                    ep,
                    id.into(),
                    header.cast(),
                    header_len,
                    data.cast(),
                    data_len,
                    &raw const params,
                )
            }
            Operation::Outgoing(Outgoing::Tagged { endpoint, tag, data }) => {
                let (ep, (data, len)) = (endpoint.of(inner), part(data));
                ucx.ucp_tag_send_nbx(ep, data.cast(), len, tag, &raw const params)
            }
            Operation::Outgoing(Outgoing::Put {
                endpoint,
                memory,
                offset,
                data,
            }) => {
                let (ep, (data, len)) = (endpoint.of(inner), part(data));
                let (key, to) = memory.at(endpoint, offset, len);
                ucx.ucp_put_nbx(ep, data.cast(), len, to, key, &raw const params)
            }
            Operation::Outgoing(Outgoing::Add {
                endpoint,
                memory,
                offset,
                operand,
            }) => {
                let (ep, (operand, len)) = (endpoint.of(inner), part(operand));
                assert!(len == 8 && offset.is_multiple_of(8), "a word of 8 bytes is added");
                let (key, to) = memory.at(endpoint, offset, len);
                params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
                params.datatype = ucp_dt_make_contig(8);
                ucx.ucp_atomic_op_nbx(
                    ep,
                    UCP_ATOMIC_OP_ADD,
                    operand.cast(),
                    1,
                    to,
                    key,
                    &raw const params,
                )
            }
            Operation::Outgoing(Outgoing::Flush { endpoint }) => {
                ucx.ucp_ep_flush_nbx(endpoint.of(inner), &raw const params)
            }
            Operation::Outgoing(Outgoing::FlushWorker) => ucx.ucp_worker_flush_nbx(worker, &raw const params),
            Operation::Outgoing(Outgoing::Close { endpoint, force }) => {
                endpoint.of(inner);
                let Some(ep) = endpoint.take() else {
                    return UCS_STATUS_PTR(UCS_OK);
                };
                params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
                inner.endpoints.set(inner.endpoints.get() - 1);
                params.flags = if force { UCP_EP_CLOSE_FLAG_FORCE } else { 0 };
                ucx.ucp_ep_close_nbx(ep, &raw const params)
            }
            Operation::Incoming(Incoming::Fetch { message, data }) => {
                assert!(
                    message.worker == inner.shared.serial,
                    "data are fetched by another worker than their own"
                );
                let (to, len) = part(data);
                ucx.ucp_am_recv_data_nbx(worker, message.data, to.cast(), len, &raw const params)
            }
            Operation::Incoming(Incoming::Get {
                endpoint,
                memory,
                offset,
                data,
            }) => {
                let (ep, (to, len)) = (endpoint.of(inner), part(data));
                let (key, from) = memory.at(endpoint, offset, len);
                ucx.ucp_get_nbx(ep, to.cast(), len, from, key, &raw const params)
            }
            Operation::Incoming(Incoming::Tagged { tag, mask, data }) => {
                let (to, len) = part(data);
                ucx.ucp_tag_recv_nbx(worker, to.cast(), len, tag, mask, &raw const params)
            }
        }
    }
}
