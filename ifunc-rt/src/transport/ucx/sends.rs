//! Active messages that a worker sends, bodies that it fetches, and the parcels of what is under way.

use std::ffi::c_void;

use ucx_sys::*;

use super::engine::Locked;
use super::header::{Head, ONE_PIECE};
use super::inbox::{Data, on_received, on_sent};
use super::parcel::{Parcel, Purpose};
use super::table::ConnectionId;

impl Locked<'_> {
    /// Sends `len` bytes of the parcel's body over `ep`. `Some`: it is sent, and this is its parcel.
    pub(super) fn send(
        &mut self,
        connection: ConnectionId,
        ep: ucp_ep_h,
        am_id: Option<u16>,
        mut parcel: Box<Parcel>,
        head: Head,
        len: usize,
    ) -> Result<Option<Box<Parcel>>, Status> {
        self.is_open()?;
        parcel.set_header(&head.encode());
        parcel.purpose = Purpose::Sending { connection, len };
        let of_handshake = head.is_of_the_handshake();
        let (header, data) = if of_handshake || len > ONE_PIECE {
            (parcel.header(), parcel.body(len))
        } else {
            (&[][..], parcel.one_piece(len))
        };
        let ((header, header_len), (data, data_len)) =
            ((header.as_ptr(), header.len()), (data.as_ptr(), data.len()));
        let mut flags = 0;
        if of_handshake {
            // So that the receiver is told which endpoint it is of.
            flags |= UCP_AM_SEND_FLAG_REPLY;
        }
        if head.is_notice() || header_len == 0 {
            // Never fetched.
            flags |= UCP_AM_SEND_FLAG_EAGER;
        }
        let parcel = Box::into_raw(parcel);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
            flags,
            cb: ucp_request_param_t__bindgen_ty_1 { send: Some(on_sent) },
            user_data: parcel.cast(),
            ..ucp_request_param_t::default()
        };
        // SAFETY: the endpoint is alive, its worker this thread's; header and body stay where they are, in the parcel, until
        // the operation has ended.
        let request = unsafe {
            self.ucx().ucp_am_send_nbx(
                ep,
                am_id.unwrap_or(self.am_id()).into(),
                header.cast(),
                header_len,
                data.cast(),
                data_len,
                &raw const params,
            )
        };
        if UCS_PTR_IS_PTR(request)
            && let Some(connection) = self.state.connections.get_mut(&connection)
        {
            connection.under_way.begin(len);
        }
        self.under_way_or_back(parcel, request)
    }

    /// Fetches a body. `Ok(Some)`: it is here.
    pub(super) fn fetch(
        &mut self,
        what: *mut c_void,
        len: usize,
        purpose: Purpose,
    ) -> Result<Option<Box<Parcel>>, Status> {
        self.is_open()?;
        let mut parcel = self.inbox().parcel(len);
        parcel.purpose = purpose;
        let body = parcel.body_mut(len).as_mut_ptr();
        let parcel = Box::into_raw(parcel);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            cb: ucp_request_param_t__bindgen_ty_1 {
                recv_am: Some(on_received),
            },
            user_data: parcel.cast(),
            ..ucp_request_param_t::default()
        };
        // SAFETY: the worker is alive and this thread's; `what` is of a message that was kept, and used for the first time;
        // the body stays where it is, in the parcel, until the operation has ended.
        let request = unsafe {
            self.ucx()
                .ucp_am_recv_data_nbx(self.worker(), what, body.cast(), len, &raw const params)
        };
        if request.is_null() {
            // SAFETY: made from a box above; UCX is done with it and will not call back.
            return Ok(Some(unsafe { Box::from_raw(parcel) }));
        }
        self.under_way(parcel, request).map(|()| None)
    }

    /// Keeps the parcel of an operation that has begun, and takes back that of one that is over.
    pub(super) fn under_way(&mut self, parcel: *mut Parcel, request: ucs_status_ptr_t) -> Result<(), Status> {
        if let Some(parcel) = self.under_way_or_back(parcel, request)? {
            self.inbox().give(parcel);
        }
        Ok(())
    }

    /// As [`under_way`](Self::under_way); `Some` is the parcel of an operation that went well and is over.
    fn under_way_or_back(
        &mut self,
        parcel: *mut Parcel,
        request: ucs_status_ptr_t,
    ) -> Result<Option<Box<Parcel>>, Status> {
        if UCS_PTR_IS_PTR(request) {
            self.state.parcels.insert(parcel);
            return Ok(None);
        }
        // SAFETY: made from a box by the caller; UCX is done with it and will not call back.
        let parcel = unsafe { Box::from_raw(parcel) };
        match self.ucx().check_ptr(request) {
            Ok(()) => Ok(Some(parcel)),
            Err(status) => {
                self.inbox().give(parcel);
                Err(status)
            }
        }
    }

    /// The parcel of an operation that has ended.
    pub(super) fn ended(&mut self, parcel: *mut Parcel) -> Option<Box<Parcel>> {
        self.state.parcels.remove(&parcel).then(|| {
            // SAFETY: it was made from a box, and UCX, which had it, has said that it is done.
            unsafe { Box::from_raw(parcel) }
        })
    }

    /// Gives the memory of data back.
    pub(super) fn discard(&mut self, data: Data) {
        match data {
            Data::Copied(parcel, _) => self.inbox().give(parcel),
            Data::Kept(..) | Data::Fetchable(..) if self.state.closed => {}
            // SAFETY: the worker is alive and this thread's; the data were kept, and this is their last use.
            Data::Kept(data, _) | Data::Fetchable(data, _) => unsafe {
                self.ucx().ucp_am_data_release(self.worker(), data);
            },
        }
    }
}
