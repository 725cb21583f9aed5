//! Memory that UCX reads from or writes to while an operation is under way, and the pool that it goes back to.

use super::header::HEADER;
use super::inbox::Inbox;
use super::table::ConnectionId;
use crate::wire::buffer::AlignedBuffer;
use ifunc_abi::frame::BODY_ALIGN;

/// Where the body begins in a parcel that is sent: the header right before it, and alignment.
pub(super) const BODY: usize = BODY_ALIGN;
const _: () = assert!(HEADER <= BODY);

/// Memory, and what it is used for. Boxed: UCX has its address as the operation's user data.
pub(super) struct Parcel {
    /// Where completions go.
    pub(super) inbox: *const Inbox,
    pub(super) memory: AlignedBuffer,
    pub(super) purpose: Purpose,
}

impl Parcel {
    /// The smallest room.
    pub(super) const LEAST: usize = 256;

    /// How long a body may be.
    pub(super) fn room(&self) -> usize {
        self.memory.len() - BODY
    }

    pub(super) fn body(&self, len: usize) -> &[u8] {
        &self.memory.as_slice()[BODY..BODY + len]
    }

    pub(super) fn body_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[BODY..BODY + len]
    }

    pub(super) fn set_header(&mut self, header: &[u8; HEADER]) {
        self.memory.as_mut_slice()[BODY - HEADER..BODY].copy_from_slice(header);
    }

    pub(super) fn header(&self) -> &[u8] {
        &self.memory.as_slice()[BODY - HEADER..BODY]
    }

    /// The header and a body of `len` bytes.
    pub(super) fn one_piece(&self, len: usize) -> &[u8] {
        &self.memory.as_slice()[BODY - HEADER..BODY + len]
    }
}

/// What an operation under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// None.
    Idle,
    /// A message of the connection, with a body of `len` bytes, is being sent.
    Sending { connection: ConnectionId, len: usize },
    /// The body of a frame is being received by rendezvous.
    Receiving {
        connection: ConnectionId,
        sequence: u32,
        words: [u64; 2],
        len: usize,
    },
    /// An endpoint is being closed.
    Closing,
    /// Credits are being put.
    Crediting { connection: ConnectionId },
    /// A sleep is being announced.
    Announcing { connection: ConnectionId },
}

/// Parcels by size. What is in use is bounded by credits; what is kept, by [`MOST`](Self::MOST).
#[derive(Default)]
#[expect(clippy::vec_box, reason = "UCX has had their addresses, and will again")]
pub(super) struct Pool {
    classes: Vec<Vec<Box<Parcel>>>,
    kept: usize,
}

// SAFETY: `Parcel::inbox` is only followed by callbacks of UCX, under the lock of the engine that owns the inbox.
unsafe impl Send for Parcel {}

impl Pool {
    /// Bytes of memory that are kept for the next message.
    const MOST: usize = 8 << 20;

    fn class(len: usize) -> usize {
        (len.max(Parcel::LEAST).next_power_of_two() / Parcel::LEAST).ilog2() as usize
    }

    /// A parcel for a body of `len` bytes; what they are is anything.
    pub(super) fn take(&mut self, len: usize, inbox: *const Inbox) -> Box<Parcel> {
        let class = Self::class(len);
        if let Some(parcel) = self.classes.get_mut(class).and_then(Vec::pop) {
            self.kept -= parcel.memory.len();
            return parcel;
        }
        let mut memory = AlignedBuffer::default();
        memory.resize(BODY + (Parcel::LEAST << class));
        Box::new(Parcel {
            inbox,
            memory,
            purpose: Purpose::Idle,
        })
    }

    /// Gives a parcel back.
    pub(super) fn give(&mut self, mut parcel: Box<Parcel>) {
        let len = parcel.memory.len();
        if self.kept + len > Self::MOST {
            return;
        }
        parcel.purpose = Purpose::Idle;
        let class = Self::class(len - BODY);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.kept += len;
        self.classes[class].push(parcel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_come_back_and_no_more_than_a_few_are_kept() {
        let mut pool = Pool::default();
        let take = |pool: &mut Pool, len| pool.take(len, std::ptr::null());
        for (len, room) in [(0, 256), (256, 256), (257, 512), (1 << 20, 1 << 20)] {
            assert_eq!(take(&mut pool, len).room(), room);
        }
        let parcel = take(&mut pool, 3000);
        let there = parcel.body(1).as_ptr();
        assert!(there.addr().is_multiple_of(BODY_ALIGN));
        pool.give(parcel);
        assert_eq!(take(&mut pool, 4096).body(1).as_ptr(), there);
        let many: Vec<_> = (0..20).map(|_| take(&mut pool, 1 << 20)).collect();
        many.into_iter().for_each(|parcel| pool.give(parcel));
        assert!(pool.kept <= Pool::MOST && pool.kept > Pool::MOST / 2);
    }
}
