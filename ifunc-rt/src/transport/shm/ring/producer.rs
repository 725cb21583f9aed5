//! The writing side of a ring.

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, INLINE, commit_word};

use super::shared::Shared;
use crate::transport::{LinkError, Outbound, RingSize};

/// The writing side of a ring.
pub(crate) struct Producer<S> {
    shared: S,
    size: RingSize,
    /// Frames committed.
    sent: u64,
    /// Bytes of the data ring given to their bodies.
    cursor: u64,
    /// What `sent` and `cursor` may become, by the credits that were read and validated last.
    limits: [u64; 2],
    reserved: Reserved,
    broken: Option<&'static str>,
}

/// What `reserve` returned.
#[derive(Clone, Copy)]
struct Reserved {
    len: usize,
    place: Place,
}

/// Where a reserved body lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing is reserved.
    None,
    /// In the slot.
    Slot,
    /// In the data ring. If the body turns out to be small enough, it moves into the slot.
    Movable,
    /// In the data ring, because the slot is not aligned as the body must be.
    Data,
}

/// Bytes of the data ring that a body takes.
#[inline]
pub(super) fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
}

/// Alignment of a body that lies in its slot.
const INLINE_ALIGN: usize = 8;

impl<S: Shared> Producer<S> {
    /// The writing side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            size,
            sent: 0,
            cursor: 0,
            limits: [size.slots.into(), size.data.into()],
            reserved: Reserved {
                len: 0,
                place: Place::None,
            },
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

    /// Whether there is a slot and `bytes` of the data ring, by the credits read last.
    #[inline]
    fn has_credit(&self, bytes: u64) -> bool {
        self.sent < self.limits[0] && (bytes == 0 || self.cursor + bytes <= self.limits[1])
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
        Ok(self.has_credit(bytes))
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

    /// Moves a body from the data ring to its slot, if it fits: memory for the largest answer was reserved and the answer
    /// is small. One cache line crosses then, not two.
    #[inline]
    fn moves_to_slot(&self, len: usize) -> bool {
        let moves = self.reserved.place == Place::Movable && len <= INLINE;
        if moves {
            let (from, to) = (self.shared.data(self.data_at()), self.shared.inline(self.slot()));
            // SAFETY: both are valid for `INLINE` bytes by `Shared`'s promise, lie in different parts of the
            // segment, and belong to this side until the commit.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        }
        moves
    }

    /// Publishes the next frame, whose body lies in the data ring.
    #[inline]
    fn publish_data(&mut self, header: Header, len: usize) -> u32 {
        let place = std::mem::replace(&mut self.reserved.place, Place::None);
        assert!(place != Place::None, "`reserve` comes before `commit`");
        let at = self.data_at();
        self.cursor += footprint(len);
        let sequence = self.publish(self.slot(), header, len);
        let free = self.limits[1].saturating_sub(self.cursor);
        self.shared.body_published(at, len, self.data_at(), free as usize);
        sequence
    }

    #[cold]
    fn read_credits(&mut self) -> Result<(), LinkError> {
        if let Some(why) = self.broken {
            return Err(LinkError::Malformed(why));
        }
        let [frames, bytes] = self.shared.load_credits();
        let limits = [
            frames.saturating_add(self.size.slots.into()),
            bytes.saturating_add(self.size.data.into()),
        ];
        if frames > self.sent
            || bytes > self.cursor
            || limits[0] < self.limits[0]
            || limits[1] < self.limits[1]
        {
            let why = "credits for frames that were never sent";
            self.broken = Some(why);
            // `reserve` finds no credit, and then the reason.
            self.limits = [0; 2];
            return Err(LinkError::Malformed(why));
        }
        self.limits = limits;
        Ok(())
    }
}

#[cfg(test)]
impl<S> Producer<S> {
    /// As if so many inline frames had passed.
    pub(super) fn skip(&mut self, frames: u64) {
        self.sent = frames;
        self.limits[0] = frames + u64::from(self.size.slots);
    }
}

impl<S: Shared> Outbound for Producer<S> {
    #[inline]
    fn max_body(&self) -> usize {
        self.size.max_body()
    }

    #[inline(always)]
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(
            len <= self.size.max_body() && align <= BODY_ALIGN,
            "a body larger than the transport takes"
        );
        let place = match (len <= INLINE, align <= INLINE_ALIGN) {
            (true, true) => Place::Slot,
            (_, true) => Place::Movable,
            (_, false) => Place::Data,
        };
        let bytes = if place == Place::Slot { 0 } else { footprint(len) };
        let at_once = !self.shared.is_gone() && self.has_credit(bytes);
        if !at_once && !self.await_credit(bytes)? {
            return Ok(None);
        }
        let ptr = if place == Place::Slot {
            self.shared.inline(self.slot())
        } else {
            self.shared.data(self.data_at())
        };
        self.reserved = Reserved { len, place };
        // SAFETY: `Shared` promises `INLINE` or `size.data` valid bytes there, and `len` is at most that. The
        // consumer gave this region back (`has_credit`) and does not read it before `commit`; this side
        // makes no other reference to it while `self` is borrowed. A peer that breaks the protocol can still
        // write there: that changes what bytes we send, and nothing else, because any bytes are valid `u8`s
        // and nothing is decided by reading them back.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) }))
    }

    #[inline(always)]
    fn commit(&mut self, mut header: Header, len: usize) -> u32 {
        assert!(len <= self.reserved.len, "a body larger than what was reserved");
        if self.reserved.place != Place::Slot && !self.moves_to_slot(len) {
            return self.publish_data(header, len);
        }
        self.reserved.place = Place::None;
        header.flags = header.flags.union(FrameFlags::INLINE);
        self.publish(self.slot(), header, len)
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        // The last credits of a peer that is gone are all that it will ever say.
        let consumed = match self.read_credits() {
            Ok(()) => self.limits[0] - u64::from(self.size.slots),
            Err(_) => return true,
        };
        let behind = (self.sent as u32).wrapping_sub(sequence);
        self.sent - u64::from(behind) > consumed
    }
}
