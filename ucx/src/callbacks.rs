//! What UCX calls. A callback that runs while the handler is called, because the handler began an operation, is delivered
//! afterwards: the handler is not re-entered.

use std::ffi::c_void;
use std::marker::PhantomData;

use ucx_sys::{
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP, UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS,
    UCS_OK, ucp_am_recv_param_t, ucp_conn_request_h, ucp_ep_h, ucp_tag_recv_info_t, ucs_status_t,
};

use crate::buffer::{Buffer, Node};
use crate::endpoint::EndpointId;
use crate::handler::{Callback, Handler};
use crate::inner::{Inner, Registration};
use crate::listener::ConnectionRequest;
use crate::message::{CONSUMED, Message};

/// Something that happened while the handler was called.
pub(crate) enum Late<T> {
    Message {
        id: u16,
        header: Vec<u8>,
        /// Copied, or what a message is fetched by.
        data: Result<Vec<u8>, (*mut c_void, usize)>,
        reply: ucp_ep_h,
        attributes: u64,
    },
    Completed(Buffer<T>, ucs_status_t),
    Failed(ucp_ep_h, ucs_status_t),
    Requested(ConnectionRequest),
}

impl<T: Send + 'static> Late<T> {
    pub(crate) fn deliver<H: Handler<Tag = T>>(self, inner: &Inner<H>, handler: &mut H) {
        let callback = &mut Callback::new(inner);
        match self {
            Self::Message {
                id,
                header,
                data,
                reply,
                attributes,
            } => {
                let (data, len) = match &data {
                    Ok(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
                    Err(fetchable) => *fetchable,
                };
                let mut verdict = CONSUMED;
                let message = Message {
                    id,
                    worker: inner.shared.serial,
                    header: header.as_ptr(),
                    header_len: header.len(),
                    data,
                    len,
                    attributes,
                    reply,
                    verdict: &mut verdict,
                    bytes: PhantomData,
                };
                let is_rendezvous = message.is_rendezvous();
                handler.message(callback, message);
                if is_rendezvous && verdict == CONSUMED {
                    // SAFETY: kept by the callback, and not taken by the handler: this is its last use.
                    unsafe { inner.ucx().ucp_am_data_release(inner.raw, data) };
                }
            }
            Self::Completed(buffer, status) => handler.completed(callback, buffer, inner.result(status)),
            Self::Failed(ep, status) => {
                if let Some(id) = EndpointId::new(ep) {
                    handler.endpoint_failed(id, inner.ucx().status(status));
                }
            }
            Self::Requested(request) => handler.connection_requested(request),
        }
    }
}

/// `ucp_am_recv_callback_t`.
///
/// # Safety
/// Called by UCX, with a registration of a worker that is alive as `arg`.
pub(crate) unsafe extern "C" fn on_message<H: Handler>(
    arg: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the registration lives as long as the worker that calls back, and is referred to mutably by nothing; so does what
    // it leads to. The parameters are readable during the call.
    let (registration, param) = unsafe { (&*arg.cast::<Registration<H>>(), &*param) };
    // SAFETY: as above.
    let inner = unsafe { &*registration.inner };
    let _gate = inner.gate();
    let id = registration.number as u16;
    if inner.is_entered() {
        // SAFETY: the header is readable for its length, and so are data that need not be fetched.
        return unsafe { message_late(inner, id, header, header_len, data, len, param) };
    }
    let mut verdict = CONSUMED;
    inner.enter(|handler, callback| {
        let message = Message {
            id,
            worker: inner.shared.serial,
            header: header.cast(),
            header_len,
            data,
            len,
            attributes: param.recv_attr,
            reply: param.reply_ep,
            verdict: &mut verdict,
            bytes: PhantomData,
        };
        handler.message(callback, message);
    });
    verdict
}

/// # Safety
/// As for [`on_message`].
#[cold]
unsafe fn message_late<H: Handler>(
    inner: &Inner<H>,
    id: u16,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: &ucp_am_recv_param_t,
) -> ucs_status_t {
    if inner.closed.get() {
        return UCS_OK;
    }
    let copy = |from: *const c_void, len: usize| {
        let mut bytes = vec![0; len];
        if len > 0 {
            // SAFETY: readable for its length by the caller's promise, and copied without a reference to it.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), bytes.as_mut_ptr(), len) };
        }
        bytes
    };
    let is_rendezvous = param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    let (data, verdict) = if is_rendezvous {
        (Err((data, len)), UCS_INPROGRESS)
    } else {
        (Ok(copy(data, len)), UCS_OK)
    };
    inner.late.borrow_mut().push(Late::Message {
        id,
        header: copy(header, header_len),
        data,
        reply: if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 {
            param.reply_ep
        } else {
            std::ptr::null_mut()
        },
        // A copy cannot be kept.
        attributes: param.recv_attr & !u64::from(UCP_AM_RECV_ATTR_FLAG_DATA),
    });
    verdict
}

/// `ucp_send_nbx_callback_t`.
///
/// # Safety
/// Called by UCX, with a linked node as `user_data`.
pub(crate) unsafe extern "C" fn on_sent<H: Handler>(
    request: *mut c_void,
    status: ucs_status_t,
    user_data: *mut c_void,
) {
    // SAFETY: passed on.
    unsafe { completed::<H>(request, status, user_data.cast()) }
}

/// `ucp_am_recv_data_nbx_callback_t`.
///
/// # Safety
/// As for [`on_sent`].
pub(crate) unsafe extern "C" fn on_fetched<H: Handler>(
    request: *mut c_void,
    status: ucs_status_t,
    _len: usize,
    user_data: *mut c_void,
) {
    // SAFETY: passed on.
    unsafe { completed::<H>(request, status, user_data.cast()) }
}

/// `ucp_tag_recv_nbx_callback_t`.
///
/// # Safety
/// As for [`on_sent`].
pub(crate) unsafe extern "C" fn on_tag_received<H: Handler>(
    request: *mut c_void,
    status: ucs_status_t,
    _info: *const ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: passed on.
    unsafe { completed::<H>(request, status, user_data.cast()) }
}

/// # Safety
/// As for [`on_sent`].
unsafe fn completed<H: Handler>(request: *mut c_void, status: ucs_status_t, node: *mut Node<H::Tag>) {
    // SAFETY: a linked node is alive, and so is the worker that it names: it waits for its operations, or for their end by itself.
    let owner = unsafe { (*node).owner }.cast::<Inner<H>>();
    // SAFETY: as above.
    let inner = unsafe { &*owner };
    let gate = inner.gate();
    // SAFETY: the request has ended, and is known by its node alone: this is its last use. The node is linked, and UCX is done
    // with it.
    let buffer = unsafe {
        inner.ucx().ucp_request_free(request);
        inner.unlink(node);
        Buffer::from_raw(node)
    };
    if inner.orphaned.get() {
        drop(buffer);
        let is_last = inner.is_last();
        drop(gate);
        if is_last {
            // SAFETY: from a box that was given up when the worker was; no operation is under way, and the worker does not call
            // back for messages any more. UCX runs one callback of a worker at a time.
            drop(unsafe { Box::from_raw(owner.cast_mut()) });
        }
    } else if inner.is_entered() {
        if !inner.closed.get() {
            inner.late.borrow_mut().push(Late::Completed(buffer, status));
        }
    } else {
        inner.enter(|handler, callback| handler.completed(callback, buffer, inner.result(status)));
    }
}

/// `ucp_err_handler_cb_t`.
///
/// # Safety
/// Called by UCX, with a worker that is alive as `arg`.
pub(crate) unsafe extern "C" fn on_failure<H: Handler>(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: the worker's, which is alive, and referred to mutably by nothing.
    let inner = unsafe { &*arg.cast::<Inner<H>>() };
    let _gate = inner.gate();
    let failed = Late::Failed(ep, status);
    if inner.is_entered() {
        inner.late.borrow_mut().push(failed);
    } else if !inner.orphaned.get() {
        inner.enter(|handler, _| failed.deliver(inner, handler));
    }
}

/// `ucp_listener_conn_callback_t`.
///
/// # Safety
/// Called by UCX, with a registration of a worker that is alive as `arg`.
pub(crate) unsafe extern "C" fn on_connection<H: Handler>(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: as for `on_message`.
    let registration = unsafe { &*arg.cast::<Registration<H>>() };
    // SAFETY: as above.
    let inner = unsafe { &*registration.inner };
    let _gate = inner.gate();
    let requested = Late::Requested(ConnectionRequest {
        worker: inner.shared.serial,
        listener: registration.number,
        raw: request,
    });
    if inner.is_entered() {
        inner.late.borrow_mut().push(requested);
    } else {
        inner.enter(|handler, _| requested.deliver(inner, handler));
    }
}
