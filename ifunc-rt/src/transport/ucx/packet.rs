//! Packets: a header and a body in one buffer, which UCX reads or writes while an operation is under way, and the pool that they
//! go back to.

use ::ucx::{Buffer, EndpointId, Kept};
use zerocopy::FromBytes;

use super::header::{HEADER, Head};
use super::packed::{HeaderWords, MAX_FIRST};
use super::table::ConnectionId;
use crate::transport::window::Credits;
use ifunc_abi::frame::BODY_ALIGN;

/// Where the body begins: the header right before it, and aligned.
pub(super) const BODY: usize = BODY_ALIGN;
const _: () = assert!(HEADER <= BODY && MAX_FIRST == HEADER);

/// A buffer, and what it is used for.
#[derive(Debug)]
pub(super) struct Packet(pub(super) Buffer<Tag>);

/// What an operation with a packet is for, and the frame that has arrived in it.
#[derive(Debug, Default)]
pub(super) struct Tag {
    purpose: Purpose,
    arrived: Arrived,
}

/// The frame that has arrived in a packet. Valid while the packet is a [`Frame`](super::frame::Frame)'s.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) sequence: u32,
    pub(super) words: [u64; 2],
    /// Length of the body.
    pub(super) len: usize,
    /// The body, where UCX has received it. `None`: it is the packet's.
    pub(super) kept: Option<Kept>,
}

impl Packet {
    /// The least capacity.
    pub(super) const LEAST: usize = 256;

    fn new(capacity: usize) -> Self {
        Self(Buffer::new(BODY + capacity, Tag::default()))
    }

    /// How long a body may be.
    pub(super) fn capacity(&self) -> usize {
        self.0.len() - BODY
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(super) fn body(&self, len: usize) -> &[u8] {
        &self.0[BODY..BODY + len]
    }

    pub(super) fn body_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.0[BODY..BODY + len]
    }

    /// Copies the header's line, and a body of `len` bytes.
    pub(super) fn copy_from(&mut self, other: &Self, len: usize) {
        self.0[..BODY + len].copy_from_slice(&other.0[..BODY + len]);
    }

    /// Where a header is put: it ends right before the body.
    #[inline]
    pub(super) fn header_mut(&mut self) -> &mut HeaderWords {
        let bytes = &mut self.0[BODY - HEADER..BODY];
        HeaderWords::mut_from_bytes(bytes).expect("words of any alignment, and as many")
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.0.tag().purpose
    }

    pub(super) fn set_purpose(&mut self, purpose: Purpose) {
        self.0.tag_mut().purpose = purpose;
    }

    #[inline]
    pub(super) fn arrived(&self) -> &Arrived {
        &self.0.tag().arrived
    }

    #[inline]
    pub(super) fn arrived_mut(&mut self) -> &mut Arrived {
        &mut self.0.tag_mut().arrived
    }
}

/// What an operation under way is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// None.
    #[default]
    Idle,
    /// A message of the connection is being sent, of so many frames and so much data.
    Sending {
        connection: ConnectionId,
        sent: Credits,
        is_packed: bool,
    },
    /// The body of a frame is being fetched.
    Fetching { connection: ConnectionId, head: Head },
    /// The endpoint of a route is being flushed, before it is closed.
    Flushing { route: EndpointId },
    /// An endpoint is being closed.
    Closing,
    /// Credits are being put.
    Crediting { connection: ConnectionId },
    /// A sleep is being announced.
    Announcing { connection: ConnectionId },
}

/// Free packets by size. What is in use is bounded by credits; what is free, by [`MOST`](Self::MOST).
#[derive(Default)]
pub(super) struct Pool {
    /// One of the least capacity: nearly always the next packet.
    spare: Option<Packet>,
    classes: Vec<Vec<Packet>>,
    /// Bytes of those in `classes`.
    free: usize,
}

impl Pool {
    /// Bytes of packets that are kept for the next message.
    const MOST: usize = 8 << 20;

    #[inline]
    fn class(len: usize) -> usize {
        match len {
            // Nearly always.
            ..=Packet::LEAST => 0,
            _ => (len.next_power_of_two() / Packet::LEAST).ilog2() as usize,
        }
    }

    /// A packet for a body of `len` bytes, whose contents are arbitrary.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Packet {
        if len <= Packet::LEAST
            && let Some(packet) = self.spare.take()
        {
            return packet;
        }
        self.take_of_class(len)
    }

    #[inline(never)]
    fn take_of_class(&mut self, len: usize) -> Packet {
        let class = Self::class(len);
        if let Some(packet) = self.classes.get_mut(class).and_then(Vec::pop) {
            self.free -= packet.0.len();
            return packet;
        }
        Packet::new(Packet::LEAST << class)
    }

    /// Bytes of free packets.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free + self.spare.as_ref().map_or(0, |spare| spare.0.len())
    }

    /// Takes a packet back.
    #[inline]
    pub(super) fn give(&mut self, mut packet: Packet) {
        debug_assert!(packet.arrived().kept.is_none(), "a buffer of UCX's would be lost");
        packet.set_purpose(Purpose::Idle);
        if self.spare.is_none() && packet.capacity() == Packet::LEAST {
            self.spare = Some(packet);
        } else {
            self.give_to_class(packet);
        }
    }

    #[inline(never)]
    fn give_to_class(&mut self, packet: Packet) {
        let len = packet.0.len();
        if self.free + len > Self::MOST {
            return;
        }
        let class = Self::class(len - BODY);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.free += len;
        self.classes[class].push(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_and_no_more_than_a_few_are_kept() {
        let mut pool = Pool::default();
        for (len, capacity) in [(0, 256), (256, 256), (257, 512), (1 << 20, 1 << 20)] {
            assert_eq!(pool.take(len).capacity(), capacity);
        }
        // One of the least capacity is at hand, and others are not lost beside it.
        let small = [pool.take(1), pool.take(1)];
        let [spare, other] = small.each_ref().map(|packet| packet.body(1).as_ptr());
        small.into_iter().for_each(|packet| pool.give(packet));
        assert_eq!((pool.free, pool.free()), (BODY + 256, 2 * (BODY + 256)));
        let small = [pool.take(256), pool.take(0)];
        assert_eq!(small.map(|packet| packet.body(1).as_ptr()), [spare, other]);
        let packet = pool.take(3000);
        let there = packet.body(1).as_ptr();
        assert!(there.addr().is_multiple_of(BODY_ALIGN));
        pool.give(packet);
        assert_eq!(pool.free, BODY + 4096);
        assert_eq!(pool.take(4096).body(1).as_ptr(), there);
        assert_eq!(pool.free, 0);
        let many: Vec<_> = (0..20).map(|_| pool.take(1 << 20)).collect();
        many.into_iter().for_each(|packet| pool.give(packet));
        assert_eq!(pool.free, 7 * (BODY + (1 << 20)));
        // As many as are kept, to the byte.
        let rest = Pool::MOST - pool.free;
        for (len, is_kept) in [(rest + 1, false), (rest, true)] {
            let before = pool.free;
            pool.give(Packet::new(len - BODY));
            assert_eq!(pool.free - before, if is_kept { len } else { 0 });
        }
    }
}
