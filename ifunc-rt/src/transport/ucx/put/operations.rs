//! Puts and gets over an endpoint, and what follows from them: frames and credits.

use std::ops::Range;

use ifunc_abi::frame::{BODY_ALIGN, commit_word as first_word};
use ucx_sys::*;

use super::layout::{CREDITS, Layout, View, commit_word};
use super::offer::Offer;
use super::ring::{HEADER_AT, Place, record};
use super::rings::Rings;
use crate::transport::LinkError;
use crate::transport::ucx::credits::UnderWay;
use crate::transport::ucx::engine::{Locked, Refused};
use crate::transport::ucx::handshake::Welcome;
use crate::transport::ucx::header::Credits;
use crate::transport::ucx::inbox::on_sent;
use crate::transport::ucx::parcel::{BODY, Parcel, Purpose};
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};

/// A one-sided operation.
pub(super) enum Operation {
    /// Of these bytes of the parcel, to this place in the peer's memory.
    Put(Range<usize>, usize),
    /// Of as many bytes as the range has, from this place in the peer's memory.
    Get(Range<usize>, usize),
    /// What was put before has landed when it ends.
    Flush,
}

impl Connection {
    /// The rings, if frames go by them.
    pub(in super::super) fn rings(&mut self) -> Option<&mut Rings> {
        match &mut self.stage {
            Stage::Offered(rings) | Stage::Put(rings) => Some(rings),
            _ => None,
        }
    }
}

/// What is needed to put something over a connection.
#[derive(Clone, Copy)]
pub(super) struct Route {
    ep: ucp_ep_h,
    key: ucp_rkey_h,
    remote: u64,
}

impl Locked<'_> {
    /// Memory that this side receives in, laid out for `mine`, and what the peer is told of it.
    pub(in super::super) fn offer(
        &mut self,
        welcome: Welcome,
        mine: Layout,
        peer: Layout,
    ) -> Result<(Box<Rings>, Offer), Refused> {
        let memory = self.new_memory(mine)?;
        let key = match self.pack_key(&memory) {
            Ok(key) => key,
            Err(refused) => {
                self.end_memory(memory);
                return Err(refused);
            }
        };
        let offer = Offer {
            address: memory.base().addr() as u64,
            nonce: super::offer::nonce(),
            key,
        };
        if !offer.fits() {
            self.end_memory(memory);
            return Err(Refused {
                doing: "giving a ring away: its key is too long",
                status: self.ucx().status(UCS_ERR_EXCEEDS_LIMIT),
            });
        }
        // SAFETY: UCX's, of this length; it stays until the connection is forgotten, after the last handle of it has gone.
        let view = unsafe { View::new(memory.base(), mine, offer.nonce) };
        view.clear();
        Ok((Box::new(Rings::new(welcome, view, memory, peer, 0)), offer))
    }

    /// The peer gave its ring away.
    pub(in super::super) fn take_offer(
        &mut self,
        rings: &mut Rings,
        ep: ucp_ep_h,
        offer: &Offer,
    ) -> Result<(), Refused> {
        rings.nonce = offer.nonce;
        self.take_key(&mut rings.memory, ep, offer)
    }

    pub(super) fn route(&self, id: ConnectionId) -> Option<Route> {
        let connection = self.state.connections.get(&id)?;
        let Stage::Put(rings) = &connection.stage else {
            return None;
        };
        (!connection.ep.is_null()).then(|| Route {
            ep: connection.ep,
            key: rings.memory.key(),
            remote: rings.memory.remote(0),
        })
    }

    /// Begins an operation. `Ok(Some)`: it has ended already.
    pub(super) fn begin(
        &mut self,
        route: Route,
        mut parcel: Box<Parcel>,
        operation: Operation,
        purpose: Purpose,
    ) -> Result<Option<Box<Parcel>>, Status> {
        parcel.purpose = purpose;
        let memory = parcel.memory.as_mut_slice();
        let (at, len) = match &operation {
            Operation::Put(range, _) | Operation::Get(range, _) => {
                (memory[range.clone()].as_mut_ptr(), range.len())
            }
            Operation::Flush => (std::ptr::null_mut(), 0),
        };
        let parcel = Box::into_raw(parcel);
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            cb: ucp_request_param_t__bindgen_ty_1 { send: Some(on_sent) },
            user_data: parcel.cast(),
            ..ucp_request_param_t::default()
        };
        let Route { ep, key, remote } = route;
        let ucx = self.ucx();
        // SAFETY: the endpoint is alive, its worker this thread's, the key of this endpoint and alive; what is put lies in the
        // parcel, and stays there until the operation has ended, as does what is got.
        let request = unsafe {
            match operation {
                Operation::Put(_, to) => {
                    ucx.ucp_put_nbx(ep, at.cast(), len, remote + to as u64, key, &raw const params)
                }
                Operation::Get(_, from) => {
                    ucx.ucp_get_nbx(ep, at.cast(), len, remote + from as u64, key, &raw const params)
                }
                Operation::Flush => ucx.ucp_ep_flush_nbx(ep, &raw const params),
            }
        };
        if UCS_PTR_IS_PTR(request) {
            self.state.parcels.insert(parcel);
            return Ok(None);
        }
        // SAFETY: made from a box above; UCX is done with it and will not call back.
        let parcel = unsafe { Box::from_raw(parcel) };
        match ucx.check_ptr(request) {
            Ok(()) => Ok(Some(parcel)),
            Err(status) => {
                self.inbox().give(parcel);
                Err(status)
            }
        }
    }

    /// Puts bytes that belong to nobody. `true`: they have gone.
    pub(super) fn put_bytes(
        &mut self,
        route: Route,
        bytes: &[u8],
        to: usize,
        purpose: Purpose,
    ) -> Result<bool, Status> {
        let mut parcel = self.inbox().parcel(bytes.len());
        parcel.body_mut(bytes.len()).copy_from_slice(bytes);
        let ended = self.begin(
            route,
            parcel,
            Operation::Put(BODY..BODY + bytes.len(), to),
            purpose,
        )?;
        let gone = ended.is_some();
        if let Some(parcel) = ended {
            self.inbox().give(parcel);
        }
        Ok(gone)
    }

    /// Puts anything anywhere into the peer's memory.
    #[cfg(test)]
    pub(in super::super) fn put_anything(&mut self, id: ConnectionId, bytes: &[u8], to: usize) {
        let route = self.route(id).unwrap();
        let purpose = Purpose::Sending {
            connection: id,
            len: bytes.len(),
        };
        self.put_bytes(route, bytes, to, purpose).unwrap();
        self.fence().unwrap();
    }

    fn fence(&mut self) -> Result<(), Status> {
        // SAFETY: the worker is alive, and this thread's by the lock.
        let status = unsafe { self.ucx().ucp_worker_fence(self.worker()) };
        self.ucx().check(status)
    }

    /// Puts a frame. The parcel, if it is free again, and what is under way.
    pub(in super::super) fn put_frame(
        &mut self,
        id: ConnectionId,
        parcel: Box<Parcel>,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
    ) -> (Option<Box<Parcel>>, UnderWay) {
        let Some(route) = self.route(id) else {
            return (Some(parcel), UnderWay::default());
        };
        match self.try_put_frame(route, id, parcel, words, len, (sequence, place)) {
            Ok(parcel) => {
                self.answer(id);
                let connection = self.state.connections.get(&id);
                let under_way = connection.map_or_else(UnderWay::default, |connection| connection.under_way);
                (parcel, under_way)
            }
            Err(status) => {
                tracing::debug!(%status, "putting a frame");
                self.end(id, LinkError::Closed);
                (None, UnderWay::default())
            }
        }
    }

    fn try_put_frame(
        &mut self,
        route: Route,
        id: ConnectionId,
        mut parcel: Box<Parcel>,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
    ) -> Result<Option<Box<Parcel>>, Status> {
        let Some(rings) = self.state.connections.get_mut(&id).and_then(Connection::rings) else {
            return Ok(Some(parcel));
        };
        let (peer, commit) = (rings.peer, commit_word(rings.nonce, sequence));
        // Before anything is put: see `sleeping`.
        rings.view.post_frames(sequence);
        let sending = |len| Purpose::Sending { connection: id, len };
        let header = &mut parcel.memory.as_mut_slice()[HEADER_AT..BODY_ALIGN];
        let first = first_word(sequence, len as u32);
        for (to, word) in header.chunks_exact_mut(8).zip([first, words[0], words[1]]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let pending = |locked: &mut Self, gone: bool, len| {
            if !gone && let Some(connection) = locked.state.connections.get_mut(&id) {
                connection.under_way.begin(len);
            }
        };
        if !place.is_whole() {
            let mut header = [0; BODY_ALIGN - HEADER_AT];
            header.copy_from_slice(&parcel.memory.as_slice()[HEADER_AT..BODY_ALIGN]);
            let gone = self.put_bytes(route, &header, peer.line(place.head) + HEADER_AT, sending(0))?;
            pending(self, gone, 0);
        }
        let (bytes, to) = if place.is_whole() {
            let bytes = record(place, len);
            (bytes.clone(), peer.line(place.head) + bytes.start)
        } else {
            (BODY..BODY + len, peer.line(place.body))
        };
        let parcel = self.begin(route, parcel, Operation::Put(bytes, to), sending(len))?;
        pending(self, parcel.is_some(), len);
        // What lies in the ring now is no frame.
        failpoint!("transport.commit");
        self.fence()?;
        let gone = self.put_bytes(route, &commit.to_ne_bytes(), peer.commit(sequence), sending(0))?;
        pending(self, gone, 0);
        Ok(parcel)
    }

    /// Gives credits.
    pub(in super::super) fn give_credits(&mut self, id: ConnectionId, credits: Credits) {
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        if connection.gone.is_some() {
            return;
        }
        let Some(rings) = connection.rings() else { return };
        rings.view.post_credits(credits);
        if rings.credits.give(credits) {
            self.put_credits(id, credits);
        }
        self.answer(id);
    }

    fn put_credits(&mut self, id: ConnectionId, credits: Credits) {
        let mut credits = Some(credits);
        while let Some(next) = credits
            && let Some(route) = self.route(id)
        {
            let purpose = Purpose::Crediting { connection: id };
            match self.put_bytes(route, &next.pack().to_ne_bytes(), CREDITS, purpose) {
                Ok(true) => credits = self.credits_landed(id),
                Ok(false) => return,
                Err(status) => {
                    tracing::debug!(%status, "giving credits");
                    return self.end(id, LinkError::Closed);
                }
            }
        }
    }

    fn credits_landed(&mut self, id: ConnectionId) -> Option<Credits> {
        let connection = self.state.connections.get_mut(&id)?;
        connection.rings()?.credits.ended()
    }

    /// An operation of this module's has ended.
    pub(in super::super) fn one_sided_done(&mut self, parcel: Box<Parcel>, status: ucs_status_t) {
        let (Purpose::Crediting { connection: id } | Purpose::Announcing { connection: id }) = parcel.purpose
        else {
            return self.inbox().give(parcel);
        };
        let purpose = parcel.purpose;
        if status != UCS_OK {
            self.inbox().give(parcel);
            return self.end(id, LinkError::Closed);
        }
        if let Purpose::Announcing { .. } = purpose {
            return self.announcing(id, Some(parcel));
        }
        self.inbox().give(parcel);
        if let Some(credits) = self.credits_landed(id) {
            self.put_credits(id, credits);
        }
    }
}
