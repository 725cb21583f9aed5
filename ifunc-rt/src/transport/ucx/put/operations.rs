//! Puts and gets over an endpoint: frames and credits.

use ::ucx::{Operation, Operations, Posted, Remote, Status};
use ifunc_abi::frame::{BODY_ALIGN, commit_word as first_word};

use super::layout::{CREDITS, commit_word};
use super::ring::{HEADER_AT, Place, record};
use crate::transport::ucx::credits::{UnderWay, message_of};
use crate::transport::ucx::engine::{Core, Locked};
use crate::transport::ucx::header::pack;
use crate::transport::ucx::packet::{BODY, Packet, Purpose};
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};
use crate::transport::window::Credits;

/// The connection is over: an operation did not begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

impl Locked<'_> {
    /// Begins a one-sided operation at `offset` of the peer's memory. `Some`: it has ended already.
    pub(super) fn one_sided(
        &mut self,
        id: ConnectionId,
        mut packet: Packet,
        purpose: Purpose,
        offset: usize,
        operation: impl for<'a> FnOnce(Remote<'a>) -> Operation<'a>,
    ) -> Result<Option<Packet>, Lost> {
        packet.set_purpose(purpose);
        let Core { worker, state } = &mut **self;
        let Some(Connection {
            endpoint: Some(endpoint),
            stage: Stage::Put(rings),
            under_way,
            ..
        }) = state.connections.get_mut(&id)
        else {
            return Err(Lost);
        };
        let at = Remote {
            endpoint,
            memory: rings.remote.as_ref().ok_or(Lost)?,
            offset,
        };
        match worker.post(operation(at), packet.0) {
            Ok(Posted::Done(buffer)) => Ok(Some(Packet(buffer))),
            Ok(Posted::UnderWay(_)) => {
                if let Purpose::Sending { sent, .. } = purpose {
                    under_way.begin(sent);
                }
                Ok(None)
            }
            Err(status) => {
                self.lose(id, "putting", status);
                Err(Lost)
            }
        }
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
        let sent = message_of(bytes.len());
        self.put_bytes(
            connection,
            bytes,
            to,
            Purpose::Sending {
                connection,
                sent,
                is_packed: false,
            },
        )
        .unwrap();
        self.worker.fence().unwrap();
    }

    /// Puts a frame. The packet, if it is free again, and the sends under way.
    pub(crate) fn put_frame(
        &mut self,
        id: ConnectionId,
        packet: Packet,
        words: [u64; 2],
        len: usize,
        frame: (u32, Place),
    ) -> (Option<Packet>, UnderWay) {
        let Ok(packet) = self.try_put_frame(id, packet, words, len, frame) else {
            return (None, UnderWay::default());
        };
        self.answer(id);
        let connection = self.state.connections.get(&id);
        (packet, connection.map_or_else(UnderWay::default, |c| c.under_way))
    }

    fn try_put_frame(
        &mut self,
        id: ConnectionId,
        mut packet: Packet,
        words: [u64; 2],
        len: usize,
        (sequence, place): (u32, Place),
    ) -> Result<Option<Packet>, Lost> {
        let rings = self.state.rings(id).ok_or(Lost)?;
        let (peer, commit) = (rings.peer, commit_word(rings.nonce, sequence));
        // Before anything is put: see `sleeping`.
        rings.view.post_frames(sequence);
        let sending = |len| Purpose::Sending {
            connection: id,
            sent: message_of(len),
            is_packed: false,
        };
        let header = &mut packet.bytes_mut()[HEADER_AT..BODY_ALIGN];
        let first = first_word(sequence, len as u32);
        for (to, word) in header.chunks_exact_mut(8).zip([first, words[0], words[1]]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let (data, offset) = if place.is_whole() {
            let bytes = record(place, len);
            (bytes.clone(), peer.line(place.head) + bytes.start)
        } else {
            let mut header = [0; BODY_ALIGN - HEADER_AT];
            header.copy_from_slice(&packet.bytes()[HEADER_AT..BODY_ALIGN]);
            self.put_bytes(id, &header, peer.line(place.head) + HEADER_AT, sending(0))?;
            (BODY..BODY + len, peer.line(place.body))
        };
        let packet = self.one_sided(id, packet, sending(len), offset, |to| Operation::Put { to, data })?;
        // The ring holds no frame yet.
        failpoint!("transport.commit");
        if let Err(status) = self.worker.fence() {
            self.lose(id, "putting", status);
            return Err(Lost);
        }
        let (commit, offset) = (commit.to_ne_bytes(), peer.commit(sequence));
        let Some(mut packet) = packet else {
            self.put_bytes(id, &commit, offset, sending(0))?;
            return Ok(None);
        };
        // UCX is done with the packet, nearly always.
        packet.bytes_mut()[..commit.len()].copy_from_slice(&commit);
        let data = 0..commit.len();
        self.one_sided(id, packet, sending(0), offset, |to| Operation::Put { to, data })
    }

    /// Returns credits to the peer.
    pub(crate) fn give_credits(&mut self, id: ConnectionId, credits: Credits) {
        let Some(rings) = self.state.rings(id) else { return };
        rings.view.post_credits(credits);
        let credits = rings.credits.give(credits);
        self.put_credits(id, credits);
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
