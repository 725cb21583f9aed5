//! Puts and gets over an endpoint, and what follows from them: frames and credits.

use std::ops::Range;
use std::sync::Arc;

use ::ucx::code::{UCS_ERR_CANCELED, UCS_ERR_EXCEEDS_LIMIT};
use ::ucx::{Operation, Operations, Posted, Status};
use ifunc_abi::frame::{BODY_ALIGN, commit_word as first_word};

use super::layout::{CREDITS, Layout, View, commit_word};
use super::offer::Offer;
use super::ring::{HEADER_AT, Place, record};
use super::rings::Rings;
use crate::transport::LinkError;
use crate::transport::ucx::credits::UnderWay;
use crate::transport::ucx::engine::{Core, Locked};
use crate::transport::ucx::header::pack;
use crate::transport::ucx::packet::{BODY, Packet, Purpose};
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};
use crate::transport::window::Credits;

/// A one-sided operation.
pub(super) enum OneSided {
    /// Of these bytes of the packet, to this place in the peer's memory.
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

impl Locked<'_> {
    /// Memory that this side receives in, laid out for `mine`, and the offer of it.
    pub(in super::super) fn make_offer(
        &mut self,
        mine: Layout,
        peer: Layout,
    ) -> Result<(Box<Rings>, Offer), ::ucx::Error> {
        let memory = self.worker.allocate(mine.len())?;
        let offer = Offer {
            address: memory.address(),
            nonce: super::offer::nonce(),
            key: memory.key().to_vec(),
        };
        if !offer.fits() {
            return Err(::ucx::Error {
                doing: "offering a ring: its key is too long",
                status: self.worker.library().status(UCS_ERR_EXCEEDS_LIMIT),
            });
        }
        let view = View::new(Arc::new(memory), mine, offer.nonce);
        view.clear();
        Ok((Box::new(Rings::new(view, peer)), offer))
    }

    /// Takes the peer's offer.
    pub(in super::super) fn take_offer(
        &mut self,
        rings: &mut Rings,
        id: ConnectionId,
        offer: &Offer,
    ) -> Result<(), ::ucx::Error> {
        let core: &mut Core = self;
        let connection = core.state.connections.get(&id);
        let Some(endpoint) = connection.and_then(|connection| connection.endpoint.as_ref()) else {
            return Err(::ucx::Error {
                doing: "taking a ring",
                status: core.worker.library().status(UCS_ERR_CANCELED),
            });
        };
        rings.nonce = offer.nonce;
        // SAFETY: peers are trusted with the process, as `docs/transports.md` says; what is told from a key by its form was.
        let remote = unsafe {
            core.worker
                .unpack(endpoint, &offer.key, offer.address, rings.peer.len())?
        };
        rings.remote = Some(remote);
        Ok(())
    }

    /// Whether something can be put over a connection.
    pub(super) fn can_put(&self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(&id);
        connection.is_some_and(|connection| {
            connection.endpoint.is_some()
                && matches!(&connection.stage, Stage::Put(rings) if rings.remote.is_some())
        })
    }

    /// Begins an operation. `Ok(Some)`: it has ended already.
    pub(super) fn begin_one_sided(
        &mut self,
        id: ConnectionId,
        mut packet: Packet,
        operation: OneSided,
        purpose: Purpose,
    ) -> Result<Option<Packet>, Status> {
        packet.set_purpose(purpose);
        let core: &mut Core = self;
        let connection = core.state.connections.get(&id);
        let Some(Connection {
            endpoint: Some(endpoint),
            stage: Stage::Put(rings),
            ..
        }) = connection
        else {
            return Err(core.worker.library().status(UCS_ERR_CANCELED));
        };
        let Some(memory) = &rings.remote else {
            return Err(core.worker.library().status(UCS_ERR_CANCELED));
        };
        let operation = match operation {
            OneSided::Put(data, offset) => Operation::Put {
                endpoint,
                memory,
                offset,
                data,
            },
            OneSided::Get(data, offset) => Operation::Get {
                endpoint,
                memory,
                offset,
                data,
            },
            OneSided::Flush => Operation::Flush { endpoint },
        };
        Ok(match core.worker.post(operation, packet.0)? {
            Posted::Done(buffer) => Some(Packet(buffer)),
            Posted::UnderWay(_) => None,
        })
    }

    /// Puts a copy of some bytes. `true`: they have gone.
    pub(super) fn put_bytes(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        to: usize,
        purpose: Purpose,
    ) -> Result<bool, Status> {
        let mut packet = self.packet(bytes.len());
        packet.body_mut(bytes.len()).copy_from_slice(bytes);
        let put = OneSided::Put(BODY..BODY + bytes.len(), to);
        let ended = self.begin_one_sided(id, packet, put, purpose)?;
        let gone = ended.is_some();
        if let Some(packet) = ended {
            self.give(packet);
        }
        Ok(gone)
    }

    /// Puts anything anywhere into the peer's memory.
    #[cfg(test)]
    pub(in super::super) fn put_anything(&mut self, id: ConnectionId, bytes: &[u8], to: usize) {
        let purpose = Purpose::Sending {
            connection: id,
            len: bytes.len(),
        };
        self.put_bytes(id, bytes, to, purpose).unwrap();
        self.worker.fence().unwrap();
    }

    /// Puts a frame. The packet, if it is free again, and what is under way.
    pub(in super::super) fn put_frame(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
    ) -> (Option<Packet>, UnderWay) {
        if !self.can_put(id) {
            return (Some(packet), UnderWay::default());
        }
        match self.try_put_frame(id, packet, words, len, (sequence, place)) {
            Ok(packet) => {
                self.answer(id);
                let connection = self.state.connections.get(&id);
                let under_way = connection.map_or_else(UnderWay::default, |connection| connection.under_way);
                (packet, under_way)
            }
            Err(status) => {
                self.lose(id, "putting a frame", status);
                (None, UnderWay::default())
            }
        }
    }

    fn try_put_frame(
        &mut self,
        id: ConnectionId,
        mut packet: Packet,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
    ) -> Result<Option<Packet>, Status> {
        let Some(rings) = self.state.connections.get_mut(&id).and_then(Connection::rings) else {
            return Ok(Some(packet));
        };
        let (peer, commit) = (rings.peer, commit_word(rings.nonce, sequence));
        // Before anything is put: see `sleeping`.
        rings.view.post_frames(sequence);
        let sending = |len| Purpose::Sending { connection: id, len };
        let header = &mut packet.bytes_mut()[HEADER_AT..BODY_ALIGN];
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
            header.copy_from_slice(&packet.bytes()[HEADER_AT..BODY_ALIGN]);
            let gone = self.put_bytes(id, &header, peer.line(place.head) + HEADER_AT, sending(0))?;
            pending(self, gone, 0);
        }
        let (bytes, to) = if place.is_whole() {
            let bytes = record(place, len);
            (bytes.clone(), peer.line(place.head) + bytes.start)
        } else {
            (BODY..BODY + len, peer.line(place.body))
        };
        let packet = self.begin_one_sided(id, packet, OneSided::Put(bytes, to), sending(len))?;
        pending(self, packet.is_some(), len);
        // What lies in the ring now is no frame.
        failpoint!("transport.commit");
        self.worker.fence()?;
        let gone = self.put_bytes(id, &commit.to_ne_bytes(), peer.commit(sequence), sending(0))?;
        pending(self, gone, 0);
        Ok(packet)
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
            && self.can_put(id)
        {
            let purpose = Purpose::Crediting { connection: id };
            match self.put_bytes(id, &pack(next).to_ne_bytes(), CREDITS, purpose) {
                Ok(true) => credits = self.credits_landed(id),
                Ok(false) => return,
                Err(status) => {
                    return self.lose(id, "giving credits", status);
                }
            }
        }
    }

    fn credits_landed(&mut self, id: ConnectionId) -> Option<Credits> {
        let connection = self.state.connections.get_mut(&id)?;
        connection.rings()?.credits.ended()
    }

    /// An operation of this module's has ended.
    pub(in super::super) fn one_sided_completed(&mut self, packet: Packet, result: Result<(), Status>) {
        let (Purpose::Crediting { connection: id } | Purpose::Announcing { connection: id }) =
            packet.purpose()
        else {
            return self.give(packet);
        };
        let purpose = packet.purpose();
        if result.is_err() {
            self.give(packet);
            return self.end(id, LinkError::Closed);
        }
        if let Purpose::Announcing { .. } = purpose {
            return self.announcing(id, Some(packet));
        }
        self.give(packet);
        if let Some(credits) = self.credits_landed(id) {
            self.put_credits(id, credits);
        }
    }
}
