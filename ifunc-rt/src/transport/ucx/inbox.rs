//! Where UCX's callbacks put what happened. They do nothing else: what it means is decided when UCX has returned, by code
//! that may call UCX again.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifunc_abi::frame::BODY_ALIGN;
use ucx_sys::{
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP, UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS,
    UCS_OK, Ucx, ucp_am_recv_param_t, ucp_conn_request_h, ucp_ep_h, ucs_status_t,
};

use super::handshake::LONGEST;
use super::header::{HEADER, Head, ONE_PIECE};
use super::parcel::{Parcel, Pool};
use crate::transport::bell::Bell;

/// Bodies up to this length are copied: cheaper than to keep UCX's buffer, which is as large as its largest message.
const COPIED: usize = ONE_PIECE;

/// What happened and was not looked at yet. Used under the lock of the engine that it belongs to: callbacks run only while
/// UCX is called, and that is done under the lock, too. Where the application calls UCX for the same worker, its gate is
/// what each use goes through.
pub(super) struct Inbox {
    ucx: &'static Ucx,
    events: RefCell<Vec<Event>>,
    pool: RefCell<Pool>,
    gate: Option<Gate>,
    /// Operations under way of an engine that is gone; the last one ends the inbox.
    orphans: Cell<usize>,
}

/// Where the worker is the application's: its calls fill the inbox at any time, on any thread.
pub(super) struct Gate {
    lock: Mutex<()>,
    /// Whoever puts something in rings.
    armed: Cell<bool>,
    bell: Arc<Bell>,
}

/// Something that happened.
pub(super) enum Event {
    /// A message came.
    Message {
        /// From where; null if it does not say.
        from: ucp_ep_h,
        /// `None`: it is none of ours.
        head: Option<Head>,
        data: Data,
    },
    /// The operation of this parcel has ended.
    Done(*mut Parcel, ucs_status_t),
    /// An endpoint's peer is gone.
    Failed(ucp_ep_h, ucs_status_t),
    /// Somebody wants to connect.
    Knock(ucp_conn_request_h),
}

/// The data of a message.
pub(super) enum Data {
    /// Copied, so many bytes.
    Copied(Box<Parcel>, usize),
    /// In a buffer of UCX's, which is given back by `ucp_am_data_release`.
    Kept(*mut c_void, usize),
    /// To be fetched, so many bytes; what it is known by is used up by `ucp_am_recv_data_nbx` or
    /// `ucp_am_data_release`.
    Fetchable(*mut c_void, usize),
}

impl Inbox {
    /// With a bell it is that of a worker of the application's.
    pub(super) fn new(ucx: &'static Ucx, bell: Option<Arc<Bell>>) -> Self {
        Self {
            ucx,
            events: RefCell::default(),
            pool: RefCell::default(),
            gate: bell.map(|bell| Gate {
                lock: Mutex::default(),
                armed: Cell::new(false),
                bell,
            }),
            orphans: Cell::new(0),
        }
    }

    fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let gate = self.gate.as_ref()?;
        Some(gate.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all bodies are copied: UCX's buffers are the application's, too.
    fn copies(&self) -> bool {
        self.gate.is_some()
    }

    /// Has the bell rung by what happens next.
    pub(super) fn ring_for_the_next(&self) {
        let _inside = self.enter();
        if let Some(gate) = &self.gate {
            gate.armed.set(true);
        }
    }

    /// The engine is gone and has `orphans` operations under way, whose parcels are freed when they end, and with the last of
    /// them the inbox. What ended before is freed now.
    ///
    /// # Safety
    /// `inbox` is from a box, nobody but callbacks uses it from now on, and all of the operations' parcels are from boxes.
    pub(super) unsafe fn abandon(inbox: *mut Self, orphans: usize) {
        // SAFETY: alive by the caller's promise; callbacks use it through the gate.
        let this = unsafe { &*inbox };
        let inside = this.enter();
        let mut left = orphans;
        for event in this.events.take() {
            if let Event::Done(parcel, _) = event {
                // SAFETY: from a box by the caller's promise, and UCX is done with it.
                drop(unsafe { Box::from_raw(parcel) });
                left -= 1;
            }
        }
        this.orphans.set(left);
        drop(inside);
        if left == 0 {
            // SAFETY: from a box by the caller's promise, and no callback is to come.
            drop(unsafe { Box::from_raw(inbox) });
        }
    }

    /// Whether nothing happened, as far as can be known without the gate.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.gate.is_none() && self.events.borrow().is_empty()
    }

    /// Moves what happened to `events`, which is empty.
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        let _inside = self.enter();
        std::mem::swap(&mut *self.events.borrow_mut(), events);
    }

    pub(super) fn put(&self, event: Event) {
        let _inside = self.enter();
        self.push(event);
    }

    fn push(&self, event: Event) {
        self.events.borrow_mut().push(event);
        if let Some(gate) = &self.gate
            && gate.armed.replace(false)
        {
            gate.bell.ring();
        }
    }

    /// An operation has ended. Where nobody is left to be told, how many others are under way.
    fn finish(&self, parcel: *mut Parcel, status: ucs_status_t) -> Option<usize> {
        let _inside = self.enter();
        if self.orphans.get() == 0 {
            self.push(Event::Done(parcel, status));
            return None;
        }
        let left = self.orphans.get() - 1;
        self.orphans.set(left);
        Some(left)
    }

    /// A parcel for a body of `len` bytes.
    pub(super) fn parcel(&self, len: usize) -> Box<Parcel> {
        let _inside = self.enter();
        self.pool.borrow_mut().take(len, self)
    }

    /// Takes a parcel back.
    pub(super) fn give(&self, parcel: Box<Parcel>) {
        let _inside = self.enter();
        self.pool.borrow_mut().give(parcel);
    }
}

/// `ucp_am_recv_callback_t`.
///
/// # Safety
/// Called by UCX, with the inbox as `arg`.
pub(super) unsafe extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: the inbox lives as long as the worker whose callback this is, and nobody refers to it mutably; the
    // parameters are readable during the call.
    let (inbox, param) = unsafe { (&*arg.cast::<Inbox>(), &*param) };
    let says = |attribute: u32| param.recv_attr & u64::from(attribute) != 0;
    let from = if says(UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        param.reply_ep
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: the header is readable for its length during the call, and so are data that need not be fetched.
    let read = |header: *const c_void| unsafe { Head::decode(&header.cast::<[u8; HEADER]>().read()) };
    let fetchable = says(UCP_AM_RECV_ATTR_FLAG_RNDV);
    if header_len == 0 && !fetchable && (HEADER..=HEADER + ONE_PIECE).contains(&len) {
        let len = len - HEADER;
        let mut parcel = inbox.parcel(len);
        // SAFETY: as below, behind the header.
        unsafe { copy(data.wrapping_byte_add(HEADER), parcel.body_mut(len)) };
        inbox.put(Event::Message {
            from,
            head: Some(read(data)),
            data: Data::Copied(parcel, len),
        });
        return UCS_OK;
    }
    let head = (header_len == HEADER).then(|| read(header));
    // Notices are looked at as a whole; the longest says the address of a worker.
    let copied = if head.as_ref().is_some_and(Head::is_notice) {
        LONGEST
    } else {
        COPIED
    };
    let (data, kept) = if fetchable {
        (Data::Fetchable(data, len), true)
    } else if len > copied
        && !inbox.copies()
        && says(UCP_AM_RECV_ATTR_FLAG_DATA)
        && data.addr().is_multiple_of(BODY_ALIGN)
    {
        (Data::Kept(data, len), true)
    } else {
        let mut parcel = inbox.parcel(len);
        // SAFETY: the data are readable for their length during the call.
        unsafe { copy(data, parcel.body_mut(len)) };
        (Data::Copied(parcel, len), false)
    };
    inbox.put(Event::Message { from, head, data });
    if kept { UCS_INPROGRESS } else { UCS_OK }
}

/// Copies a body. No reference to it is made: over shared memory it is the peer's as well.
///
/// # Safety
/// `from` is readable for the length of `to`, unless that is 0.
unsafe fn copy(from: *mut c_void, to: &mut [u8]) {
    if !to.is_empty() {
        // SAFETY: the caller's promise; what is behind a reference is nowhere else.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr(), to.len()) };
    }
}

/// `ucp_send_nbx_callback_t`.
///
/// # Safety
/// Called by UCX, with a parcel as `user_data`.
pub(super) unsafe extern "C" fn on_sent(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void) {
    // SAFETY: passed on.
    unsafe { done(request, status, user_data) }
}

/// `ucp_am_recv_data_nbx_callback_t`.
///
/// # Safety
/// Called by UCX, with a parcel as `user_data`.
pub(super) unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: ucs_status_t,
    _len: usize,
    user_data: *mut c_void,
) {
    // SAFETY: passed on.
    unsafe { done(request, status, user_data) }
}

unsafe fn done(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void) {
    let parcel = user_data.cast::<Parcel>();
    // SAFETY: the parcel stays in the engine's table until the event below is looked at, and its inbox lives as long as
    // the engine. Only this field is read: the memory behind it may be somebody else's at this moment.
    let inbox = unsafe { &*(&raw const (*parcel).inbox).read() };
    // SAFETY: the request has ended, and nobody else frees it: operations are known by their parcels.
    unsafe { inbox.ucx.ucp_request_free(request) };
    let Some(left) = inbox.finish(parcel, status) else {
        return;
    };
    let inbox: *const Inbox = inbox;
    // SAFETY: from a box, and of an engine that is gone: nobody else knows of it, and UCX is done with it.
    drop(unsafe { Box::from_raw(parcel) });
    if left == 0 {
        // SAFETY: from a box, of an engine that is gone, and no other operation is under way. UCX runs one callback of a
        // worker at a time.
        drop(unsafe { Box::from_raw(inbox.cast_mut()) });
    }
}

/// `ucp_err_handler_cb_t`.
///
/// # Safety
/// Called by UCX, with the inbox as `arg`.
pub(super) unsafe extern "C" fn on_failure(arg: *mut c_void, ep: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: as for `on_message`.
    unsafe { &*arg.cast::<Inbox>() }.put(Event::Failed(ep, status));
}

/// `ucp_listener_conn_callback_t`.
///
/// # Safety
/// Called by UCX, with the inbox as `arg`.
pub(super) unsafe extern "C" fn on_knock(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: as for `on_message`.
    unsafe { &*arg.cast::<Inbox>() }.put(Event::Knock(request));
}
