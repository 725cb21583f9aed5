//! The reading side of a ring.

use ifunc_abi::frame::{FrameFlags, Header, INLINE, Kind, split_commit_word};

use super::producer::footprint;
use super::shared::Shared;
use crate::transport::{Arrived, Body, Gone, Inbound, RingSize};

/// The lower half of word 1 of an `Exec` whose body lies in the slot.
const INVOCATION: u32 = Header {
    kind: Kind::Exec,
    flags: FrameFlags::INLINE,
    handle: 0,
    token: 0,
}
.words()[0] as u32;

/// The reading side of a ring.
pub(crate) struct Consumer<S> {
    shared: S,
    size: RingSize,
    /// Frames released.
    taken: u64,
    /// Bytes of the data ring released.
    cursor: u64,
    /// The credits published last.
    published: [u64; 2],
    /// How much of each is released at most before it is published.
    lap: [u64; 2],
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    Holding(Held),
    Broken(&'static str),
}

/// The frame that `peek` found: copied out of shared memory once.
#[derive(Clone, Copy)]
struct Held {
    words: [u64; 2],
    len: usize,
    inline: bool,
}

impl<S: Shared> Consumer<S> {
    /// The reading side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            size,
            taken: 0,
            cursor: 0,
            published: [0; 2],
            lap: [(u64::from(size.slots) / 4).max(1), u64::from(size.data) / 4],
            state: State::Idle,
        }
    }

    #[inline]
    fn slot(&self) -> usize {
        (self.taken & u64::from(self.size.slots - 1)) as usize
    }

    /// Offset of the next body in the data ring.
    #[inline]
    fn data_at(&self) -> usize {
        (self.cursor & u64::from(self.size.data - 1)) as usize
    }

    /// Sequence of the next frame.
    #[inline]
    fn expected(&self) -> u32 {
        (self.taken as u32).wrapping_add(1)
    }

    /// What the frame of the last lap left as a sequence in the slot of the next one.
    #[inline]
    fn left(&self) -> u32 {
        let slots = u64::from(self.size.slots);
        if self.taken < slots {
            0
        } else {
            ((self.taken - slots) as u32).wrapping_add(1)
        }
    }

    /// Whether [`peek`](Inbound::peek) would say that nothing has arrived; `false` also where only it can tell.
    #[inline(always)]
    pub(in crate::transport) fn is_silent(&self) -> bool {
        let (sequence, _) = split_commit_word(self.shared.load_commit(self.slot()));
        matches!(self.state, State::Idle) && sequence == self.left() && !self.shared.is_gone()
    }

    /// The next frame, if it is an invocation that nobody waits for, with its payload in the slot: sequence, handle, payload.
    /// `None` says nothing. The same one until it is [released](Self::release_invocation).
    #[inline(always)]
    pub(crate) fn peek_invocation(&self) -> Option<(u32, u32, Body<'_>)> {
        let slot = self.slot();
        let (sequence, len) = split_commit_word(self.shared.load_commit(slot));
        if sequence != self.expected() || !matches!(self.state, State::Idle) {
            return None;
        }
        let [word, token] = self.shared.load_words(slot);
        let len = len as usize;
        if word as u32 != INVOCATION || token != 0 || len > INLINE {
            return None;
        }
        // SAFETY: `Shared` promises `INLINE` readable bytes there as long as `self` lives, and `len` is at most that.
        let body = unsafe { Body::new(self.shared.inline(slot), len) };
        Some((sequence, (word >> 32) as u32, body))
    }

    /// Gives the slot back of what [`peek_invocation`](Self::peek_invocation) has found.
    #[inline(always)]
    pub(crate) fn release_invocation(&mut self) {
        self.taken += 1;
        if self.taken - self.published[0] >= self.lap[0] {
            self.settle();
        }
    }

    /// Whether more than so many frames have arrived, by a look at the last of them. Yes also where the ring has few slots.
    #[inline]
    pub(crate) fn has_more_than(&self, frames: u32) -> bool {
        let far = (self.taken + u64::from(frames)) & u64::from(self.size.slots - 1);
        let (sequence, _) = split_commit_word(self.shared.load_commit(far as usize));
        self.size.slots < 8 * frames || sequence == self.expected().wrapping_add(frames)
    }

    /// Judges the slot of the next frame once; whether it has arrived.
    #[inline(always)]
    fn look(&mut self) -> Result<bool, Gone> {
        let slot = self.slot();
        let (sequence, len) = split_commit_word(self.shared.load_commit(slot));
        if sequence != self.expected() {
            return self.nothing(sequence);
        }
        let words = self.shared.load_words(slot);
        let len = len as usize;
        let inline = words[0] >> 8 & u64::from(FrameFlags::INLINE.bits()) != 0;
        if len > if inline { INLINE } else { self.size.max_body() } {
            return self.malformed("a body larger than a frame can have");
        }
        if !inline {
            self.shared.body_found(self.data_at(), len);
        }
        self.state = State::Holding(Held { words, len, inline });
        Ok(true)
    }

    /// The next frame has not arrived; its slot must be as the frame of the last lap left it.
    fn nothing(&mut self, sequence: u32) -> Result<bool, Gone> {
        if sequence != self.left() {
            return self.malformed("a commit word that is neither new nor old");
        }
        // In this order: a peer that is gone has stored all that it ever will.
        if self.shared.is_gone() {
            let (sequence, _) = split_commit_word(self.shared.load_commit(self.slot()));
            return if sequence == self.expected() {
                self.look()
            } else {
                Err(Gone::Closed)
            };
        }
        Ok(false)
    }

    #[cold]
    fn malformed(&mut self, why: &'static str) -> Result<bool, Gone> {
        self.state = State::Broken(why);
        Err(Gone::Malformed(why))
    }
}

#[cfg(test)]
impl<S> Consumer<S> {
    /// As if so many inline frames had passed.
    pub(super) fn skip(&mut self, frames: u64) {
        self.taken = frames;
        self.published[0] = frames;
    }
}

impl<S: Shared> Inbound for Consumer<S> {
    #[inline(always)]
    fn peek(&mut self) -> Result<Option<Arrived<'_>>, Gone> {
        if matches!(self.state, State::Idle) && !self.look()? {
            return Ok(None);
        }
        let held = match self.state {
            State::Idle => return Ok(None),
            State::Holding(held) => held,
            State::Broken(why) => return Err(Gone::Malformed(why)),
        };
        let ptr = if held.inline {
            self.shared.inline(self.slot())
        } else {
            self.shared.data(self.data_at())
        };
        // SAFETY: `Shared` promises `INLINE` or `size.data` readable bytes there as long as `self` lives, and
        // `look` judged that `len` is at most that.
        let body = unsafe { Body::new(ptr, held.len) };
        Ok(Some(Arrived {
            sequence: self.expected(),
            words: held.words,
            body,
        }))
    }

    #[inline(always)]
    fn release(&mut self) {
        let State::Holding(held) = self.state else { return };
        self.state = State::Idle;
        self.taken += 1;
        if !held.inline {
            self.cursor += footprint(held.len);
        }
        if self.taken - self.published[0] >= self.lap[0] || self.cursor - self.published[1] >= self.lap[1] {
            self.settle();
        }
    }

    #[inline]
    fn settle(&mut self) {
        if self.published[0] != self.taken {
            self.published = [self.taken, self.cursor];
            self.shared.store_credits(self.published);
            self.shared.wake_peer();
        }
    }

    fn arm(&mut self) -> bool {
        self.shared.announce_sleep();
        self.is_quiet()
    }

    fn disarm(&mut self) {
        self.shared.withdraw_sleep();
    }

    fn rest(&mut self) {
        self.shared.announce_rest();
    }

    fn is_quiet(&mut self) -> bool {
        matches!(self.state, State::Idle)
            && split_commit_word(self.shared.load_commit(self.slot())).0 != self.expected()
            && !self.shared.is_gone()
    }
}
