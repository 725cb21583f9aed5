//! The sending side of a connection whose frames are messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ifunc_abi::frame::{BODY_ALIGN, Header};

use super::outbox::Outbox;
use super::{CLOSED, Handle, connection};
use crate::transport::ucx::credits::units;
use crate::transport::ucx::engine::Core;
use crate::transport::ucx::gather::Next;
use crate::transport::ucx::header::{Head, MAX_PACKED_BODY, Name};
use crate::transport::ucx::packed::Entry;
use crate::transport::ucx::packet::Packet;
use crate::transport::ucx::receive_queue::{ReceiveQueue, with_queue};
use crate::transport::ucx::table::Stage;
use crate::transport::window::{Credits, SendWindow};
use crate::transport::{LinkError, Outbound, assert_fits};

/// Frames out.
pub(super) struct Sender {
    handle: Arc<Handle>,
    max_body: usize,
    outbox: Outbox,
    /// What may be sent, as of the last look at the connection: only this sender sends frames. Notices that are under way since do not count.
    left: Credits,
    /// Frames that were sent.
    sent: u64,
    /// What follows the next frame.
    next: Next,
}

impl Sender {
    /// The largest packet that is kept for the next frame.
    const KEPT: usize = 4096;

    /// Of a connection on which so much was sent.
    pub(super) fn new(handle: &Arc<Handle>, out: &SendWindow) -> Self {
        Self {
            max_body: out.capacity().data as usize * BODY_ALIGN / 2,
            outbox: Outbox::new(handle, Packet::LEAST, Self::KEPT),
            left: Credits::default(),
            sent: out.sent().frames,
            next: Next::default(),
            handle: Arc::clone(handle),
        }
    }

    /// Gets a packet for a body of `len` bytes, if there is credit for it.
    fn make_room(&mut self, len: usize) -> Result<bool, LinkError> {
        let mut locked = self.handle.engine.lock();
        let connection = connection(&mut locked, self.handle.id)?;
        if let Some(gone) = &connection.gone {
            return Err(gone.clone());
        }
        if connection.signs.has_left() {
            return Ok(false);
        }
        let Stage::Open { out, .. } = &connection.stage else {
            return Err(CLOSED);
        };
        self.left = connection.under_way.left(out);
        let has_credit = self.left.covers(units(len));
        if has_credit {
            self.outbox.fill(&mut locked, len);
        }
        Ok(has_credit)
    }
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert_fits(len, align, self.max_body);
        // Nearly always the packet of the last frame is back, and there are credits for many more.
        let is_ready = self.left.covers(units(len)) && !self.handle.signs.has_left() && self.outbox.fits(len);
        if !is_ready && !self.make_room(len)? {
            return Ok(None);
        }
        Ok(self.outbox.reserve(len).map(|packet| packet.body_mut(len)))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let id = self.handle.id;
        let (packet, reserved) = self.outbox.take(len);
        let mut locked = self.handle.engine.lock();
        let (am_id, is_gathering) = (locked.am_id(), locked.is_gathering());
        let Core { worker, state } = &mut *locked;
        let Some(connection) = state.connections.get_mut(&id) else {
            return 0;
        };
        let joins = connection.joins();
        let Stage::Open { out } = &mut connection.stage else {
            return 0;
        };
        failpoint!("transport.commit");
        let data = units(len);
        let sequence = out.send(data);
        (self.left.frames, self.left.data) = (self.left.frames - 1, self.left.data - data);
        self.sent += 1;
        let all_out = connection.under_way.is_empty();
        let brings_credits = len > MAX_PACKED_BODY || self.handle.signs.credits.load(Ordering::Relaxed);
        let credits = match brings_credits {
            true => with_queue(worker, id, ReceiveQueue::publish),
            false => None,
        };
        let next = self.next.take();
        let is_alone = !joins && !is_gathering && next == Next::Unknown && state.gather.is_empty();
        let is_entry = len <= MAX_PACKED_BODY && connection.peer != Name::NONE;
        // Nearly always.
        let back = if is_alone && is_entry && !self.outbox.is_sparse(&packet, len) {
            let entry = Entry {
                number: sequence as u16,
                len: len as u16,
                words: header.words(),
                credits,
            };
            let posted = connection.send_entry(worker, id, am_id, packet, &entry, len);
            locked.posted(id, posted)
        } else {
            let head = Head {
                sequence,
                len: len as u32,
                words: header.words(),
                credits,
                to: connection.peer,
            };
            self.outbox
                .send_unusual(&mut locked, packet, head, (joins, next), reserved)
        };
        let all_out = all_out && back.is_some();
        // Progress sends a frame that waits: the next poll does not pass.
        let waits = next == Next::MoreLikely && locked.has_gathered();
        self.handle.signs.sent.store(all_out && !waits, Ordering::Relaxed);
        self.handle.engine.polling.sent(all_out);
        if let Some(packet) = back {
            self.outbox.give_back(&mut locked, packet);
        }
        sequence
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn hold(&mut self) {
        self.next = Next::MoreAtOnce;
    }

    fn may_wait(&mut self) {
        // Not while a thread sleeps: it sends nothing.
        if self.next == Next::Unknown && !self.handle.signs.armed.load(Ordering::Relaxed) {
            self.next = Next::MoreLikely;
        }
    }

    fn flush(&mut self) {
        self.next = Next::Unknown;
        self.handle.engine.lock().send_unless_busy(self.handle.id);
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        let mut locked = self.handle.engine.lock();
        match connection(&mut locked, self.handle.id).map(|connection| &connection.stage) {
            Ok(Stage::Open { out, .. }) => out.is_unconsumed(sequence),
            _ => true,
        }
    }
}
