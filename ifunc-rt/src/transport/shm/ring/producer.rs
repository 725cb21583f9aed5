//! The writing side of a ring.

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, INLINE, commit_word};

use super::shared::Shared;
use crate::transport::{Gone, Outbound, RingSize};

/// The writing side of a ring.
pub(crate) struct Producer<S> {
    shared: S,
    size: RingSize,
    /// Frames committed.
    sent: u64,
    /// Bytes of the data ring given to their bodies.
    cursor: u64,
    /// The last credits that were read and judged: never more than `sent` and `cursor`.
    credits: [u64; 2],
    reserved: Option<Reserved>,
    broken: Option<&'static str>,
}

/// What `reserve` handed out.
#[derive(Clone, Copy)]
struct Reserved {
    len: usize,
    inline: bool,
    /// A body that turns out to be small enough may move into the slot.
    may_move: bool,
}

/// Bytes of the data ring that a body takes.
#[inline]
pub(super) fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
}

/// Whether a body lies in the slot.
#[inline]
pub(crate) fn is_inline(len: usize, align: usize) -> bool {
    len <= INLINE && align <= 8
}

impl<S: Shared> Producer<S> {
    /// The writing side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            size,
            sent: 0,
            cursor: 0,
            credits: [0; 2],
            reserved: None,
            broken: None,
        }
    }

    #[inline]
    fn slot(&self) -> usize {
        (self.sent & u64::from(self.size.slots - 1)) as usize
    }

    /// Offset of the next body in the data ring.
    #[inline]
    fn data_at(&self) -> usize {
        (self.cursor & u64::from(self.size.data - 1)) as usize
    }

    /// Whether there is a slot, by the credits read last.
    #[inline]
    fn has_slot(&self) -> bool {
        self.sent - self.credits[0] < u64::from(self.size.slots)
    }

    /// Whether there is a slot and `bytes` of the data ring, by the credits read last.
    #[inline]
    fn has_room(&self, bytes: u64) -> bool {
        self.has_slot() && self.cursor - self.credits[1] + bytes <= u64::from(self.size.data)
    }

    /// Room as [`reserve`](Outbound::reserve) gives it, by the credits read last; `None` says nothing.
    #[inline(always)]
    pub(crate) fn reserve_at_once(&mut self, len: usize, align: usize) -> Option<&mut [u8]> {
        if len > self.size.max_body() || align > BODY_ALIGN || self.broken.is_some() || self.shared.is_gone()
        {
            return None;
        }
        let inline = is_inline(len, align);
        self.has_room(if inline { 0 } else { footprint(len) })
            .then(|| self.take_room(len, inline, align))
    }

    /// Room for a body in the next slot, if it fits in and there is one by the credits read last; `None` says nothing. It is
    /// published by [`publish_inline`](Self::publish_inline), and by nothing else.
    #[inline(always)]
    pub(crate) fn slot_at_once(&mut self, len: usize, align: usize) -> Option<&mut [u8]> {
        if !is_inline(len, align) || !self.has_slot() || self.broken.is_some() || self.shared.is_gone() {
            return None;
        }
        // SAFETY: as in `take_room`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.shared.inline(self.slot()), len) })
    }

    /// Publishes what was written to [`slot_at_once`](Self::slot_at_once).
    #[inline(always)]
    pub(crate) fn publish_inline(&mut self, mut header: Header, len: usize) -> u32 {
        assert!(len <= INLINE, "a body larger than what was reserved");
        debug_assert!(self.has_slot());
        header.flags = header.flags.with(FrameFlags::INLINE);
        self.publish(self.slot(), header, len)
    }

    /// Publishes the next frame, whose body lies where it should.
    #[inline(always)]
    fn publish(&mut self, slot: usize, header: Header, len: usize) -> u32 {
        self.sent += 1;
        let sequence = self.sent as u32;
        self.shared.store_words(slot, header.words());
        failpoint!("transport.commit");
        self.shared.store_commit(slot, commit_word(sequence, len as u32));
        self.shared.wake_peer();
        sequence
    }

    /// Hands out room for which [`has_room`](Self::has_room) said that it is there.
    #[inline(always)]
    fn take_room(&mut self, len: usize, inline: bool, align: usize) -> &mut [u8] {
        let ptr = if inline {
            self.shared.inline(self.slot())
        } else {
            self.shared.data(self.data_at())
        };
        self.reserved = Some(Reserved {
            len,
            inline,
            may_move: align <= 8,
        });
        // SAFETY: `Shared` promises `INLINE` or `size.data` valid bytes there, and `len` is at most that. The
        // consumer gave this region back (`has_room`) and does not look at it before `commit`; this side
        // makes no other reference to it while `self` is borrowed. A peer that breaks the protocol can still
        // write there: that changes what bytes we send, and nothing else, because any bytes are valid `u8`s
        // and nothing is decided by reading them back.
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }

    #[cold]
    fn read_credits(&mut self) -> Result<(), Gone> {
        let credits = self.shared.load_credits();
        let old = self.credits;
        if credits[0] < old[0] || credits[0] > self.sent || credits[1] < old[1] || credits[1] > self.cursor {
            let why = "credits for frames that were never sent";
            self.broken = Some(why);
            return Err(Gone::Malformed(why));
        }
        self.credits = credits;
        Ok(())
    }
}

#[cfg(test)]
impl<S> Producer<S> {
    /// As if so many inline frames had passed.
    pub(super) fn skip(&mut self, frames: u64) {
        self.sent = frames;
        self.credits[0] = frames;
    }
}

impl<S: Shared> Outbound for Producer<S> {
    #[inline]
    fn max_body(&self) -> usize {
        self.size.max_body()
    }

    #[inline]
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, Gone> {
        assert!(
            len <= self.size.max_body() && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        if self.shared.is_gone() {
            return Err(Gone::Closed);
        }
        if let Some(why) = self.broken {
            return Err(Gone::Malformed(why));
        }
        let inline = is_inline(len, align);
        let bytes = if inline { 0 } else { footprint(len) };
        if !self.has_room(bytes) {
            self.read_credits()?;
            if !self.has_room(bytes) {
                return Ok(None);
            }
        }
        Ok(Some(self.take_room(len, inline, align)))
    }

    #[inline(always)]
    fn commit(&mut self, mut header: Header, len: usize) -> u32 {
        let reserved = self.reserved.take().expect("`reserve` comes before `commit`");
        assert!(len <= reserved.len, "a body larger than what was reserved");
        let slot = self.slot();
        if reserved.inline {
            header.flags = header.flags.with(FrameFlags::INLINE);
        } else if reserved.may_move && len <= INLINE {
            // Room for the largest answer was reserved and the answer is small: one cache line crosses, not
            // two.
            let from = self.shared.data(self.data_at());
            // SAFETY: both are valid for `INLINE` bytes by `Shared`'s promise, lie in different parts of the
            // segment, and belong to this side until the commit below.
            unsafe { std::ptr::copy_nonoverlapping(from, self.shared.inline(slot), len) };
            header.flags = header.flags.with(FrameFlags::INLINE);
        } else {
            let at = self.data_at();
            self.cursor += footprint(len);
            let sequence = self.publish(slot, header, len);
            let free = u64::from(self.size.data) - (self.cursor - self.credits[1]);
            self.shared.body_published(at, len, self.data_at(), free as usize);
            return sequence;
        }
        self.publish(slot, header, len)
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        // The last credits of a peer that is gone are all that it will ever say.
        let consumed = match self.read_credits() {
            Ok(()) => self.credits[0],
            Err(_) => return true,
        };
        let behind = (self.sent as u32).wrapping_sub(sequence);
        self.sent - u64::from(behind) > consumed
    }
}
