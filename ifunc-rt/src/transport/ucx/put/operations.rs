//! Puts and gets over an endpoint: frames and credits.

use std::sync::atomic::{Ordering, fence};

use ::ucx::{Operation, Operations, Posted, Remote, Serialized, Status, Worker};
use ifunc_abi::frame::{commit_word as first_word, split_commit_word};

use super::layout::{CREDITS, HEADER_AT, InSlot, SLOT, body_at, trailer};
use super::ring::Place;
use crate::transport::ucx::credits::{UnderWay, message_of};
use crate::transport::ucx::engine::{Core, Locked};
use crate::transport::ucx::events::EventQueue;
use crate::transport::ucx::header::pack;
use crate::transport::ucx::packet::{BODY, Packet, Purpose};
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};
use crate::transport::window::Credits;

/// The connection is over: an operation did not begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

/// Why an operation did not begin.
#[derive(Clone, Copy, Debug)]
enum NotBegun {
    /// The connection is over.
    Gone,
    Ucx(Status),
}

impl Connection {
    /// Begins a one-sided operation at `offset` of the peer's memory. `Ok(Some)`: it has ended already.
    #[inline(always)]
    fn one_sided(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        mut packet: Packet,
        purpose: Purpose,
        offset: usize,
        operation: impl for<'a> FnOnce(Remote<'a>) -> Operation<'a>,
    ) -> Result<Option<Packet>, NotBegun> {
        let (Some(endpoint), Stage::Put(rings)) = (&self.endpoint, &self.stage) else {
            return Err(NotBegun::Gone);
        };
        let at = Remote {
            endpoint,
            memory: rings.remote.as_ref().ok_or(NotBegun::Gone)?,
            offset,
        };
        packet.set_purpose(purpose);
        match worker.post(operation(at), packet.0).map_err(NotBegun::Ucx)? {
            Posted::Done(buffer) => Ok(Some(Packet(buffer))),
            Posted::UnderWay(_) => {
                if let Purpose::Sending { sent, .. } = purpose {
                    self.under_way.begin(sent);
                }
                Ok(None)
            }
        }
    }

    /// Puts a frame. `Ok(Some)`: UCX is done with the packet.
    #[inline(always)]
    fn put_frame(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        id: ConnectionId,
        mut packet: Packet,
        header: [u64; 3],
        place: Place,
    ) -> Result<Option<Packet>, NotBegun> {
        let (sequence, len) = split_commit_word(header[0]);
        let rings = self.rings().filter(|rings| rings.remote.is_some());
        let rings = rings.ok_or(NotBegun::Gone)?;
        // Before anything of it is put: see `sleeping`.
        rings.view.post_frames(sequence);
        let (layout, nonce) = (rings.peer, rings.nonce);
        let sending = sending(id, len as usize);
        match place {
            Place::Slot => {
                let len = len as usize;
                let body = packet.in_slot(len);
                packet.set_trailer(&trailer(nonce, header, body));
                self.put_slot(worker, packet, body_at(len), layout.slot(sequence), sending)
            }
            Place::Lines(lines) => {
                let (data, offset) = (BODY..BODY + len as usize, layout.line(lines.begin));
                let put =
                    self.one_sided(worker, packet, sending, offset, |to| Operation::Put { to, data })?;
                worker.fence().map_err(NotBegun::Ucx)?;
                let trailer = trailer(nonce, header, InSlot::None);
                self.put_trailer(worker, id, put, &trailer, layout.slot(sequence))
            }
        }
    }

    /// Puts a slot's trailer, after a frame's body. The body's packet is used, if it is here, and returned if UCX is done with it.
    fn put_trailer(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        id: ConnectionId,
        packet: Option<Packet>,
        trailer: &[u64; 4],
        slot: usize,
    ) -> Result<Option<Packet>, NotBegun> {
        // UCX is done with it, nearly always.
        let is_here = packet.is_some();
        let mut packet = packet.unwrap_or_else(|| worker.handler().pool.take(0));
        packet.set_trailer(trailer);
        let put = self.put_slot(worker, packet, HEADER_AT, slot, sending(id, 0))?;
        if !is_here && let Some(packet) = put {
            worker.handler().pool.give(packet);
            return Ok(None);
        }
        Ok(put)
    }

    /// Puts what a packet has of a slot, from this offset on. With it, the frame is there.
    #[inline(always)]
    fn put_slot(
        &mut self,
        worker: &mut Worker<EventQueue, Serialized>,
        packet: Packet,
        begin: usize,
        slot: usize,
        sending: Purpose,
    ) -> Result<Option<Packet>, NotBegun> {
        // No frame is there yet: of a longer one, its body was put.
        failpoint!("transport.commit");
        let data = begin..SLOT;
        self.one_sided(worker, packet, sending, slot + begin, |to| Operation::Put {
            to,
            data,
        })
    }
}

impl Packet {
    /// What of a body of this length lies in its slot.
    #[inline]
    fn in_slot(&mut self, len: usize) -> InSlot {
        let (words, _) = self.bytes_mut()[..HEADER_AT].as_chunks();
        InSlot::of(len, |at| u64::from_le_bytes(words[at / 8]))
    }

    #[inline]
    fn set_trailer(&mut self, trailer: &[u64; 4]) {
        let bytes = &mut self.bytes_mut()[HEADER_AT..SLOT];
        for (to, word) in bytes.chunks_exact_mut(8).zip(trailer) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// What a put of a part of a frame is for.
fn sending(connection: ConnectionId, len: usize) -> Purpose {
    Purpose::Sending {
        connection,
        sent: message_of(len),
        is_packed: false,
    }
}

impl Locked<'_> {
    /// Begins a one-sided operation at `offset` of the peer's memory. `Some`: it has ended already.
    pub(super) fn one_sided(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        purpose: Purpose,
        offset: usize,
        operation: impl for<'a> FnOnce(Remote<'a>) -> Operation<'a>,
    ) -> Result<Option<Packet>, Lost> {
        let Core { worker, state } = &mut **self;
        let connection = state.connections.get_mut(&id).ok_or(Lost)?;
        let begun = connection.one_sided(worker, packet, purpose, offset, operation);
        begun.map_err(|failed| self.lost(id, failed))
    }

    /// Ends a connection where UCX began no operation.
    fn lost(&mut self, id: ConnectionId, failed: NotBegun) -> Lost {
        if let NotBegun::Ucx(status) = failed {
            self.lose(id, "putting", status);
        }
        Lost
    }

    /// Puts a copy of some bytes. `true`: UCX is done with them.
    pub(super) fn put_bytes(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        offset: usize,
        purpose: Purpose,
    ) -> Result<bool, Lost> {
        let mut packet = self.packet(bytes.len());
        packet.body_mut(bytes.len()).copy_from_slice(bytes);
        let data = BODY..BODY + bytes.len();
        let ended = self.one_sided(id, packet, purpose, offset, |to| Operation::Put { to, data })?;
        let is_done = ended.is_some();
        ended.into_iter().for_each(|packet| self.give(packet));
        Ok(is_done)
    }

    /// Puts anything anywhere into the peer's memory.
    #[cfg(test)]
    pub(crate) fn put_anything(&mut self, connection: ConnectionId, bytes: &[u8], to: usize) {
        let sending = sending(connection, bytes.len());
        self.put_bytes(connection, bytes, to, sending).unwrap();
        self.worker.fence().unwrap();
    }

    /// Puts a frame. Writes to `under_way` what is under way afterwards. Returns the packet if it is free again.
    #[inline(always)]
    pub(crate) fn put_frame(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
        under_way: &mut UnderWay,
    ) -> Option<Packet> {
        *under_way = UnderWay::default();
        let Core { worker, state } = &mut **self;
        let connection = state.connections.get_mut(&id);
        let connection = connection.filter(|connection| connection.gone.is_none())?;
        let header = [first_word(sequence, len as u32), words[0], words[1]];
        let put = connection.put_frame(worker, id, packet, header, place);
        match put {
            Ok(packet) => {
                *under_way = connection.under_way;
                // The frame is posted before the announcement is read.
                fence(Ordering::SeqCst);
                if connection.rings().is_some_and(|rings| rings.is_announced()) {
                    self.answer(id);
                }
                packet
            }
            Err(failed) => {
                self.lost(id, failed);
                None
            }
        }
    }

    /// Returns credits to the peer.
    pub(crate) fn give_credits(&mut self, id: ConnectionId, credits: Credits) {
        let Some(rings) = self.state.rings(id) else { return };
        rings.view.post_credits(credits);
        let credits = rings.credits.give(credits);
        // The bodies were read before the peer may write over them.
        fence(Ordering::Release);
        self.put_credits(id, credits);
        // They are posted before the announcement is read.
        fence(Ordering::SeqCst);
        self.answer(id);
    }

    fn put_credits(&mut self, id: ConnectionId, mut credits: Option<Credits>) {
        let purpose = Purpose::Crediting { connection: id };
        while let Some(next) = credits
            && let Ok(true) = self.put_bytes(id, &pack(next).to_ne_bytes(), CREDITS, purpose)
        {
            credits = self.credits_landed(id);
        }
    }

    fn credits_landed(&mut self, id: ConnectionId) -> Option<Credits> {
        self.state.rings(id)?.credits.ended()
    }

    /// An operation of this module's has ended.
    pub(crate) fn one_sided_completed(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        result: Result<(), Status>,
    ) {
        match (packet.purpose(), result) {
            (Purpose::Announcing { .. }, Ok(())) => self.announcing(id, Some(packet)),
            (_, result) => {
                self.give(packet);
                match result {
                    Ok(()) => {
                        let credits = self.credits_landed(id);
                        self.put_credits(id, credits);
                    }
                    Err(status) => self.lose(id, "putting", status),
                }
            }
        }
    }
}
