//! The functions that UCX calls. A callback that runs while the handler is called, because the handler began an operation, is
//! delivered afterwards: the handler is not re-entered.

use std::ffi::c_void;
use std::marker::PhantomData;

use ucx_sys::{
    UCP_AM_RECV_ATTR_FLAG_DATA, UCS_INPROGRESS, UCS_OK, ucp_am_recv_param_t, ucp_ep_h, ucp_tag_recv_info_t,
    ucs_status_t,
};

use crate::buffer::{Buffer, Node};
use crate::endpoint::EndpointId;
use crate::handler::{Callback, Handler};
use crate::inner::{Inner, Registration};
use crate::message::{Data, Message, Readable};
use crate::shared::Handle;

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
    // SAFETY: the registration lives as long as the worker that calls back, and is referred to mutably by nothing; so does the
    // worker. The parameters are readable during the call.
    let (registration, param) = unsafe { (&*arg.cast::<Registration<H>>(), &*param) };
    // SAFETY: as above.
    let inner = unsafe { &*registration.inner };
    let _gate = inner.gate();
    let mut verdict = UCS_OK;
    // Made where it is used, and with a reference to what UCX has just written: a copy of either would read several fields at once, and wait
    // for their stores.
    let message = |verdict| Message {
        id: registration.id,
        worker: inner.shared.serial,
        header: header.cast(),
        header_len,
        data,
        len,
        param,
        attributes: param.recv_attr,
        verdict,
        bytes: PhantomData,
    };
    if inner.is_entered() {
        return message_late(inner, &message(&mut verdict));
    }
    inner.enter(|handler, callback| {
        let data = Readable::new(param.recv_attr, data, len).filter(|_| header_len == 0);
        call_handler(handler, callback, registration.id, data, || message(&mut verdict));
    });
    verdict
}

/// Gives the handler a message. `data`: those of one that has nothing else, and need not be fetched.
#[inline(always)]
fn call_handler<'a, H: Handler>(
    handler: &mut H,
    callback: &mut Callback<'_, H>,
    id: u16,
    data: Option<Readable<'_>>,
    message: impl FnOnce() -> Message<'a>,
) {
    if !data.is_some_and(|data| handler.data_only(id, data)) {
        handler.message(callback, message());
    }
}

/// Delivers a message after the call of the handler: a copy of what need not be fetched.
#[cold]
fn message_late<H: Handler>(inner: &Inner<H>, message: &Message<'_>) -> ucs_status_t {
    let mut header = vec![0; message.header_len];
    message.copy_header(&mut header);
    let (id, len) = (message.id, message.len);
    let data = Handle(message.data);
    let is_rendezvous = message.is_rendezvous();
    let mut copy = vec![0; if is_rendezvous { 0 } else { len }];
    if !is_rendezvous {
        message.copy_to(&mut copy);
    }
    // A copy cannot be kept.
    let mut param = *message.param;
    param.recv_attr &= !u64::from(UCP_AM_RECV_ATTR_FLAG_DATA);
    inner.deliver(move |inner, handler| {
        let mut verdict = UCS_OK;
        let message = Message {
            id,
            worker: inner.shared.serial,
            header: header.as_ptr(),
            header_len: header.len(),
            data: if is_rendezvous {
                data.0
            } else {
                copy.as_mut_ptr().cast()
            },
            len,
            attributes: param.recv_attr,
            param: &param,
            verdict: &mut verdict,
            bytes: PhantomData,
        };
        let readable = Readable::new(param.recv_attr, message.data, len).filter(|_| header.is_empty());
        call_handler(handler, &mut inner.callback(), id, readable, || message);
        if is_rendezvous && verdict == UCS_OK {
            // The handler did not take the data that UCX keeps for it.
            let worker = inner.shared.serial;
            inner.release(Data { worker, data, len });
        }
    });
    if is_rendezvous && !inner.closed.get() {
        UCS_INPROGRESS
    } else {
        UCS_OK
    }
}

/// A callback for the end of an operation. What UCX says beyond the status is not used.
macro_rules! on_end {
    ($name:ident, $type:literal $(, $more:ty)?) => {
        #[doc = concat!("`", $type, "`.")]
        ///
        /// # Safety
        /// Called by UCX, with the node of an operation that it ends as `user_data`.
        pub(crate) unsafe extern "C" fn $name<H: Handler>(
            request: *mut c_void,
            status: ucs_status_t,
            $(_: $more,)?
            user_data: *mut c_void,
        ) {
            // SAFETY: passed on.
            unsafe { completed::<H>(request, status, user_data.cast()) }
        }
    };
}

on_end!(on_sent, "ucp_send_nbx_callback_t");
on_end!(on_fetched, "ucp_am_recv_data_nbx_callback_t", usize);
on_end!(
    on_tag_received,
    "ucp_tag_recv_nbx_callback_t",
    *const ucp_tag_recv_info_t
);

/// # Safety
/// As for [`on_sent`].
unsafe fn completed<H: Handler>(request: *mut c_void, status: ucs_status_t, node: *mut Node<H::Tag>) {
    // SAFETY: until its operation has ended a node is alive, and so is the worker that it names: it waits for its operations, or for their end by
    // itself.
    let owner = unsafe { (*node).owner.0 }.cast::<Inner<H>>();
    // SAFETY: as above.
    let inner = unsafe { &*owner };
    let gate = inner.gate();
    // SAFETY: the request has ended, and is known by its node alone: this is its last use. The node is linked, or its `post` has not linked it yet,
    // and UCX is done with it.
    let buffer = unsafe {
        inner.ucx().ucp_request_free(request);
        inner.unlink(node);
        Buffer::from_raw(node)
    };
    inner.deliver(move |inner, handler| {
        handler.completed(&mut inner.callback(), buffer, inner.check(status));
    });
    let is_last = inner.orphaned.get() && inner.is_last();
    drop(gate);
    if is_last {
        // SAFETY: from a box that was given up when the worker was; no operation is under way, and the worker does not call
        // back for messages any more. UCX runs one callback of a worker at a time.
        drop(unsafe { Box::from_raw(owner) });
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
    if let Some(id) = EndpointId::new(ep) {
        inner.deliver(move |inner, handler| handler.endpoint_failed(id, inner.ucx().status(status)));
    }
}
