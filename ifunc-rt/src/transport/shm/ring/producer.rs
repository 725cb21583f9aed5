//! The writing side of a ring.

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, INLINE, commit_word};

use super::shared::Shared;
use crate::transport::window::{Credits, SendWindow};
use crate::transport::{LinkError, Outbound, RingSize};

/// The writing side of a ring.
pub(crate) struct Producer<S> {
    shared: S,
    /// Frames committed, and bytes of the data ring given to their bodies.
    window: SendWindow,
    /// Length of the body that is reserved in the slot, and 1; 0: none is. One comparison tells both.
    in_slot: usize,
    /// The body that is reserved in the data ring instead.
    in_data: Option<InData>,
    broken: Option<&'static str>,
}

/// A reserved body.
struct InData {
    len: usize,
    /// If the body turns out to be small enough, it moves into the slot, which is aligned as the body must be.
    is_movable: bool,
}

/// Bytes of the data ring that a body takes.
#[inline]
pub(super) fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
}

const TOO_LONG: &str = "a body larger than what was reserved";

/// Alignment of a body that lies in its slot.
const INLINE_ALIGN: usize = 8;

impl<S: Shared> Producer<S> {
    /// The writing side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            window: SendWindow::new(Credits::of(size, 1)),
            in_slot: 0,
            in_data: None,
            broken: None,
        }
    }

    /// The number of the next frame, counted from 0.
    #[inline(always)]
    fn next(&self) -> u64 {
        self.window.sent().frames
    }

    /// Offset of the next body in the data ring.
    #[inline]
    fn data_at(&self) -> usize {
        (self.window.sent().data & (self.window.capacity().data - 1)) as usize
    }

    /// Whether there is a slot and `bytes` of the data ring, by the credits that the peer has returned by now.
    ///
    /// # Errors
    /// The peer is gone.
    #[cold]
    fn await_credit(&mut self, bytes: u64) -> Result<bool, LinkError> {
        if self.shared.is_gone() {
            return Err(LinkError::Closed);
        }
        self.read_credits()?;
        Ok(self.window.has_credit(bytes))
    }

    /// Publishes the next frame, whose body lies where it should.
    #[inline(always)]
    fn publish(&mut self, header: Header, len: usize, bytes: u64) -> u32 {
        let frame = self.next();
        let sequence = self.window.send(bytes);
        failpoint!("transport.commit");
        let commit = commit_word(sequence, len as u32);
        self.shared.publish(frame, header.words(), commit);
        self.shared.wake_peer();
        sequence
    }

    /// Moves a body from the data ring to its slot, if it fits: memory for the largest answer was reserved and the answer
    /// is small. One cache line crosses then, not two.
    #[inline]
    fn moves_to_slot(&self, len: usize) -> bool {
        let reserved = self.in_data.as_ref().filter(|reserved| len <= reserved.len);
        let moves = len <= INLINE && reserved.is_some_and(|reserved| reserved.is_movable);
        if moves && len != 0 {
            let (from, to) = (
                self.shared.data(self.data_at()),
                self.shared.inline(self.shared.slot(self.next())),
            );
            // SAFETY: both are valid for `INLINE` bytes by `Shared`'s promise, lie in different parts of the
            // segment, and belong to this side until the commit.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        }
        moves
    }

    /// Publishes the next frame, whose body lies in the data ring.
    #[inline(always)]
    fn publish_data(&mut self, header: Header, len: usize) -> u32 {
        let Some(reserved) = self.in_data.take() else {
            panic!("`commit` without a `reserve`, or of {TOO_LONG}")
        };
        assert!(len <= reserved.len, "{TOO_LONG}");
        let at = self.data_at();
        let sequence = self.publish(header, len, footprint(len));
        let free = self.window.left().data;
        self.shared.body_published(at, len, self.data_at(), free as usize);
        sequence
    }

    #[cold]
    fn read_credits(&mut self) -> Result<(), LinkError> {
        if let Some(why) = self.broken {
            return Err(LinkError::Malformed(why));
        }
        let [frames, data] = self.shared.load_credits();
        self.window
            .acknowledge(Credits { frames, data })
            .map_err(|why| LinkError::Malformed(self.broken.insert(why)))
    }
}

#[cfg(test)]
impl<S> Producer<S> {
    /// As if so many inline frames had passed.
    pub(super) fn skip(&mut self, frames: u64) {
        self.window.skip_to(Credits { frames, data: 0 });
    }
}

impl<S: Shared> Outbound for Producer<S> {
    #[inline]
    fn max_body(&self) -> usize {
        self.window.capacity().data as usize / 2
    }

    #[inline(always)]
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(
            len <= self.max_body() && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        let fits_slot = len <= INLINE && align <= INLINE_ALIGN;
        let bytes = if fits_slot { 0 } else { footprint(len) };
        let at_once = !self.shared.has_closed() && self.window.has_credit(bytes);
        if !at_once && !self.await_credit(bytes)? {
            return Ok(None);
        }
        let ptr = if fits_slot {
            (self.in_slot, self.in_data) = (len + 1, None);
            self.shared.inline(self.shared.slot(self.next()))
        } else {
            let is_movable = align <= INLINE_ALIGN;
            (self.in_slot, self.in_data) = (0, Some(InData { len, is_movable }));
            self.shared.data(self.data_at())
        };
        // SAFETY: `Shared` promises `INLINE` or `size.data` valid bytes there, and `len` is at most that. The
        // consumer gave this region back (`has_credit`) and does not read it before `commit`; this side
        // makes no other reference to it while `self` is borrowed. A peer that breaks the protocol can still
        // write there: that changes what bytes we send, and nothing else, because any bytes are valid `u8`s
        // and nothing is decided by reading them back.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) }))
    }

    #[inline(always)]
    fn commit(&mut self, mut header: Header, len: usize) -> u32 {
        if len < self.in_slot {
            self.in_slot = 0;
        } else if self.moves_to_slot(len) {
            self.in_data = None;
        } else {
            return self.publish_data(header, len);
        }
        header.flags = header.flags.union(FrameFlags::INLINE);
        self.publish(header, len, 0)
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        // The last credits of a peer that is gone are all that it will ever say.
        self.read_credits().is_err() || self.window.is_unconsumed(sequence)
    }
}
