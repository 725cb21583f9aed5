//! The packet of a connection's next frame.

use std::sync::Arc;

use super::Handle;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::gather::Next;
use crate::transport::ucx::header::Head;
use crate::transport::ucx::packet::Packet;

/// The packet of the next frame: reserved for a body, or kept from the frame before.
pub(crate) struct Outbox {
    handle: Arc<Handle>,
    packet: Option<Packet>,
    /// How much was reserved of it.
    reserved: Option<usize>,
    /// The largest packet that is never sparse: at least [`Packet::LEAST`].
    small: usize,
    /// The largest packet that is kept.
    most: usize,
}

impl Outbox {
    /// A body moves to a packet of its size if the reserved one is this many times as large: credits bound the bytes that are
    /// sent, not those that were reserved.
    const SPARSE: usize = 4;

    pub(crate) fn new(handle: &Arc<Handle>, small: usize, most: usize) -> Self {
        Self {
            handle: Arc::clone(handle),
            packet: None,
            reserved: None,
            small,
            most,
        }
    }

    /// Whether the packet has room for a body of `len` bytes.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.packet
            .as_ref()
            .is_some_and(|packet| packet.capacity() >= len)
    }

    /// Gets a packet for a body of `len` bytes.
    pub(crate) fn fill(&mut self, locked: &mut Locked<'_>, len: usize) {
        if !self.fits(len) {
            let small = self.packet.replace(locked.packet(len));
            small.into_iter().for_each(|small| locked.give(small));
        }
    }

    /// Reserves the packet, which [fits](Self::fits).
    pub(crate) fn reserve(&mut self, len: usize) -> Option<&mut Packet> {
        self.reserved = Some(len);
        self.packet.as_mut()
    }

    /// The reserved packet, and the length that was reserved.
    pub(crate) fn take(&mut self, len: usize) -> (Packet, usize) {
        let reserved = self.packet.take().zip(self.reserved.take());
        let (packet, reserved) = reserved.expect("`reserve` comes before `commit`");
        assert!(len <= reserved, "a body larger than what was reserved");
        (packet, reserved)
    }

    /// Whether a body of `len` bytes is to move to a packet of its size.
    #[inline]
    pub(super) fn is_sparse(&self, packet: &Packet, len: usize) -> bool {
        packet.capacity() > self.small && len.saturating_mul(Self::SPARSE) < packet.capacity()
    }

    /// The packet to send, whose body has `len` bytes: a copy if it is sparse. The other one is kept if the next frame, for which as much is
    /// `reserved` as for this one, needs it.
    #[inline]
    pub(crate) fn shrink(
        &mut self,
        locked: &mut Locked<'_>,
        packet: Packet,
        len: usize,
        reserved: usize,
    ) -> Packet {
        if !self.is_sparse(&packet, len) {
            return packet;
        }
        let mut small = locked.packet(len);
        small.copy_from(&packet, len);
        if small.capacity() < reserved {
            self.packet = Some(packet);
        } else {
            locked.give(packet);
        }
        small
    }

    /// Sends a frame that is gathered, long, or in a packet that is much longer. `Some`: the packet, or another one, is free.
    #[inline(never)]
    pub(super) fn send_unusual(
        &mut self,
        locked: &mut Locked<'_>,
        packet: Packet,
        head: Head,
        (joins, next): (bool, Next),
        reserved: usize,
    ) -> Option<Packet> {
        let (id, len) = (self.handle.id, head.len as usize);
        if locked.gathers(id, &head, packet.body(len), joins, next) {
            return Some(packet);
        }
        let packet = self.shrink(locked, packet, len, reserved);
        locked.send(id, packet, head, len)
    }

    /// Takes back a packet that was sent: keeps it, or gives it to the pool.
    pub(crate) fn give_back(&mut self, locked: &mut Locked<'_>, packet: Packet) {
        if self.packet.is_none() && packet.capacity() <= self.most {
            self.packet = Some(packet);
        } else {
            locked.give(packet);
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take()
            && let Some(mut locked) = self.handle.engine.lock_here()
        {
            locked.give(packet);
        }
    }
}
