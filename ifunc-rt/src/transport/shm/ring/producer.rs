//! The writing side of a ring.

use ifunc_abi::frame::{FrameFlags, Header, INLINE, commit_word};

use super::shared::Shared;
use super::staging::Staging;
use super::{footprint, staging};
use crate::ticks::ticks;
use crate::transport::window::{Credits, SendWindow};
use crate::transport::{LinkError, Outbound, Reserved, RingSize, assert_fits, nontemporal};

/// The writing side of a ring.
pub(crate) struct Producer<S> {
    shared: S,
    /// Frames committed, and bytes of the data ring given to their bodies.
    pub(super) window: SendWindow,
    /// One more than the longest body that may be committed in the slot; 0: none is reserved. One comparison tells both.
    in_slot: usize,
    /// The same of the body that is reserved in the data ring. If it turns out to be small enough, it moves into the slot, which is aligned
    /// as it must be.
    in_data: usize,
    broken: Option<&'static str>,
    /// Where long payloads are written. Apart: a short frame does not use it.
    pub(super) staging: Box<Staging>,
}

/// Whether a body lies in the slot of its frame.
#[inline(always)]
fn fits_slot(len: usize, align: usize) -> bool {
    len <= INLINE && align <= INLINE_ALIGN
}

const NOT_RESERVED: &str = "a body larger than what was reserved";

/// Alignment of a body that lies in its slot.
const INLINE_ALIGN: usize = 8;

impl<S: Shared> Producer<S> {
    /// The writing side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            window: SendWindow::new(Credits::of(size, 1)),
            in_slot: 0,
            in_data: 0,
            broken: None,
            staging: Box::default(),
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

    /// Whether there is a slot and `bytes` of the data ring, as far as is known without the peer's credits. `false` decides nothing.
    #[inline(always)]
    fn has_credit(&self, bytes: u64) -> bool {
        !self.shared.has_closed() && self.window.has_credit(bytes)
    }

    /// Memory in the slot of the next frame, for which there is credit.
    #[inline(always)]
    fn slot_memory(&mut self, frame: u64, len: usize) -> &mut [u8] {
        debug_assert!(len <= INLINE && frame == self.next());
        let ptr = self.shared.inline(self.shared.slot(frame));
        // SAFETY: `Shared` promises `INLINE` valid bytes there, and `len` is at most that. The
        // consumer gave this region back (`has_credit`) and does not read it before `commit`; this side
        // makes no other reference to it while `self` is borrowed. A peer that breaks the protocol can still
        // write there: that changes what bytes we send, and nothing else, because any bytes are valid `u8`s
        // and nothing is decided by reading them back.
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }

    /// Publishes the next frame, whose body lies in its slot.
    #[inline(always)]
    fn publish_inline(&mut self, frame: u64, mut header: Header, len: usize) -> u32 {
        header.flags = header.flags.union(FrameFlags::INLINE);
        self.publish(frame, header, len, 0)
    }

    /// Publishes the next frame, `frame`, whose body lies where it should. Does not wake the peer.
    #[inline(always)]
    fn publish(&mut self, frame: u64, header: Header, len: usize, bytes: u64) -> u32 {
        let sequence = self.window.send_frame(frame, bytes);
        failpoint!("transport.commit");
        let commit = commit_word(sequence, len as u32);
        self.shared.publish(frame, header.words(), commit);
        sequence
    }

    /// Moves a body from the data ring to its slot, where it fits: memory for the largest answer was reserved and the answer
    /// is small. One cache line crosses then, not two.
    #[inline(always)]
    fn move_to_slot(&self, len: usize) {
        assert!(len <= INLINE);
        let (from, to) = (
            self.shared.data(self.data_at()),
            self.shared.inline(self.shared.slot(self.next())),
        );
        // SAFETY: both are valid for `INLINE` bytes by `Shared`'s promise, lie in different parts of the
        // segment, and belong to this side until the commit.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Publishes the next frame, whose body lies in the data ring.
    #[inline(always)]
    fn publish_data(&mut self, header: Header, len: usize) -> u32 {
        assert!(
            len < self.in_data,
            "`commit` without a `reserve`, or of {NOT_RESERVED}"
        );
        (self.in_slot, self.in_data) = (0, 0);
        self.publish(self.next(), header, len, footprint(len))
    }

    /// Publishes the next frame, whose body was written in the data ring.
    #[inline(always)]
    fn publish_in_place(&mut self, header: Header, len: usize) -> u32 {
        let at = self.data_at();
        let sequence = self.publish_data(header, len);
        let free = self.window.left().data;
        self.shared.body_published(at, len, self.data_at(), free as usize);
        sequence
    }

    /// As [`try_reserve`](Outbound::try_reserve), of a payload that is long enough to be staged.
    #[inline(never)]
    fn reserve_long(&mut self, len: usize, align: usize) -> Option<&mut [u8]> {
        let in_place = self.reserve(len, align).ok()??.as_mut_ptr();
        let first_lap = self.window.sent().data < self.window.capacity().data;
        if self.staging.begin(len, first_lap, ticks) {
            return Some(self.staging.memory(len));
        }
        // SAFETY: `reserve` returned a slice of this length, which borrows `self` as well; no other reference to it was made.
        Some(unsafe { std::slice::from_raw_parts_mut(in_place, len) })
    }

    /// As [`commit_reserved`](Outbound::commit_reserved), of what [`reserve_long`](Self::reserve_long) returned.
    #[inline(never)]
    fn commit_long(&mut self, header: Header, len: usize) -> u32 {
        // Before a body is copied into memory that it has no credit for.
        assert!(len < self.in_data, "`commit` of {NOT_RESERVED}");
        let is_staged = self.staging.is_staged();
        if is_staged {
            let to = self.shared.data(self.data_at());
            let from = self.staging.memory(footprint(len) as usize);
            // SAFETY: `Shared` promises `size.data` valid bytes there, and the footprint of a body is at most half as long. They belong to
            // this side until the commit; `from` is private memory.
            unsafe { nontemporal::copy_lines(from, to) };
        }
        self.staging.end(len, ticks);
        // The lines that the next body is copied to are not wanted in this core's cache.
        if is_staged && len >= self.in_slot {
            self.publish_data(header, len)
        } else {
            self.publish_reserved(header, len)
        }
    }

    /// Publishes the next frame, whose body lies where `reserve` noted.
    #[inline(always)]
    fn publish_reserved(&mut self, header: Header, len: usize) -> u32 {
        if len >= self.in_slot {
            return self.publish_in_place(header, len);
        }
        if len != 0 && self.in_data != 0 {
            self.move_to_slot(len);
        }
        (self.in_slot, self.in_data) = (0, 0);
        self.publish_inline(self.next(), header, len)
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
        assert_fits(len, align, self.max_body());
        let is_inline = fits_slot(len, align);
        let bytes = if is_inline { 0 } else { footprint(len) };
        if !self.has_credit(bytes) && !self.await_credit(bytes)? {
            return Ok(None);
        }
        if is_inline {
            (self.in_slot, self.in_data) = (len + 1, 0);
            return Ok(Some(self.slot_memory(self.next(), len)));
        }
        // A body that turns out short moves to its slot, unless it needs more alignment than a slot has.
        let movable = if align <= INLINE_ALIGN { INLINE + 1 } else { 0 };
        (self.in_slot, self.in_data) = (movable, len + 1);
        let ptr = self.shared.data(self.data_at());
        // SAFETY: as in `slot_memory`: `Shared` promises `size.data` valid bytes there, of which `max_body` is a half.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) }))
    }

    #[inline(always)]
    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let sequence = self.publish_reserved(header, len);
        self.shared.wake_peer();
        sequence
    }

    /// A short body needs no note of what was reserved.
    #[inline(always)]
    fn try_reserve(&mut self, len: usize, align: usize) -> Option<(Reserved, &mut [u8])> {
        let frame = self.next();
        let reserved = Reserved { frame, len, align };
        if !fits_slot(len, align) {
            let memory = if len >= staging::LEAST {
                self.reserve_long(len, align)?
            } else {
                self.reserve(len, align).ok()??
            };
            return Some((reserved, memory));
        }
        if !self.has_credit(0) {
            return None;
        }
        Some((reserved, self.slot_memory(frame, len)))
    }

    #[inline(always)]
    fn commit_reserved(&mut self, reserved: Reserved, header: Header, len: usize) -> u32 {
        if !fits_slot(reserved.len, reserved.align) {
            if reserved.len >= staging::LEAST {
                return self.commit_long(header, len);
            }
            return self.publish_reserved(header, len);
        }
        assert!(len <= reserved.len, "{NOT_RESERVED}");
        self.publish_inline(reserved.frame, header, len)
    }

    #[inline(always)]
    fn must_wake(&self) -> bool {
        self.shared.is_peer_asleep()
    }

    #[inline(always)]
    fn sent(&self) -> u64 {
        self.next()
    }

    #[inline(always)]
    fn wake(&mut self) {
        self.shared.wake_peer();
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        // The last credits of a peer that is gone are all that it will ever say.
        self.read_credits().is_err() || self.window.is_unconsumed(sequence)
    }
}
