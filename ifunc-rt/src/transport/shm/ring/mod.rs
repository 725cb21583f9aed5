//! The ring of one direction: a slot per frame, and a data ring for the bodies that do not fit into it.
//!
//! ```text
//! slot (64 bytes)   +0 commit word: sequence << 32 | length    stored last with Release, loaded once with Acquire
//!                   +8 word 1      +16 word 2      +24 inline body (at most 40 bytes, alignment at most 8)
//! data ring         mapped twice back to back: a body that begins in the first mapping may run on into the second
//! ```
//!
//! Slot `n % slots` holds frame number `n` (from 0), whose sequence is `n + 1`. Zeroed memory and old laps never match, so the
//! consumer clears no commit word. It may overwrite the rest of what it has consumed
//! ([`line_owner`](super::line_owner)). Only this offset is ever a commit word, so no body looks like one. No message says where a
//! body lies: both sides advance a cursor by the length of each body that is not inline, rounded up to
//! [`BODY_ALIGN`].
//!
//! The consumer publishes what it released ([`window`](crate::transport::window)) every quarter lap and when no more frames have
//! arrived. The producer reads that only when it has no credit left. A side that goes to sleep announces it in a flag, which
//! the other side reads, after a barrier, whenever it published something ([`barrier`](super::barrier)).
//!
//! Neither side trusts the other: each copies words out of shared memory once, validates the copies, and computes positions
//! from its own counters.

pub(super) mod shared;
mod staging;
mod stream;
pub(super) mod words;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, INLINE, Kind, commit_word, split_commit_word};

use self::shared::{Shared, SideState};
use self::staging::Staging;
use self::stream::Stream;
use crate::ticks::ticks;
use crate::transport::window::{Credits, ReceiveWindow, SendWindow};
use crate::transport::{
    Body, Frame, FrameRun, Inbound, LinkError, MIN_RUN, Outbound, Park, Reserved, RingSize, nontemporal,
};

/// The writing side of a ring.
pub(crate) struct Producer<S> {
    shared: S,
    /// Frames committed, and bytes of the data ring given to their bodies.
    window: SendWindow,
    /// One more than the longest body that may be committed in the slot; 0: none is reserved. One comparison tells both.
    in_slot: usize,
    /// The same of the body that is reserved in the data ring. If it turns out to be small enough, it moves into the slot, which is aligned
    /// as it must be.
    in_data: usize,
    broken: Option<&'static str>,
    /// Where long payloads are written. Apart: a short frame does not use it.
    staging: Box<Staging>,
}

/// Bytes of the data ring that a body takes.
#[inline]
fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
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
    pub(super) fn new(shared: S, size: RingSize) -> Self {
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
    fn skip(&mut self, frames: u64) {
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

/// The reading side of a ring.
pub(crate) struct Consumer<S> {
    shared: S,
    held: Held,
    /// Whether it stores into the lines that it has read ([`line_owner`](super::line_owner)).
    takes: bool,
    /// Frames and bytes of the data ring released.
    window: ReceiveWindow,
    /// Why the ring cannot be read any more.
    broken: Option<&'static str>,
    stream: Stream,
    /// What was released before the last poll that waited, and the distance that it kept.
    polled: Credits,
    distance: u32,
}

/// What the last `peek` returned: words and length are copied out of shared memory once.
#[derive(Clone, Copy)]
struct Held {
    what: What,
    words: [u64; 2],
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    /// A frame whose body lies in the slot.
    Inline,
    /// A frame whose body lies in the data ring.
    Data,
    /// The producer broke the protocol.
    Violation,
}

impl What {
    /// A frame with these words.
    #[inline(always)]
    fn of(words: [u64; 2]) -> Self {
        match words[0] >> 8 & u64::from(FrameFlags::INLINE.bits()) {
            0 => Self::Data,
            _ => Self::Inline,
        }
    }
}

/// The longest body that lies there, beside a data ring of so many bytes.
#[inline(always)]
fn longest(what: What, data: u64) -> u64 {
    match what {
        What::Data => data / 2,
        _ => INLINE as u64,
    }
}

/// The words of a slot whose frame has arrived. A consumer that takes lines stores into the slot's, so that its core owns it.
#[inline(always)]
fn take_words<S: Shared>(takes: bool, slot: S::Slot<'_>) -> [u64; 2] {
    let words = S::load_words(slot);
    if takes {
        S::take_slot(slot, words[1]);
    }
    words
}

const TOO_LONG: &str = "a body larger than a frame can have";

impl<S: Shared> Consumer<S> {
    /// The reading side of an unused ring of `size`, which is what `shared` reaches.
    pub(super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            takes: shared.consumer_takes(),
            shared,
            held: Held {
                what: What::Nothing,
                words: [0; 2],
                len: 0,
            },
            window: ReceiveWindow::new(Credits::of(size, 1)),
            broken: None,
            stream: Stream::default(),
            polled: Credits::default(),
            distance: 0,
        }
    }

    /// The number of the next frame, counted from 0.
    #[inline(always)]
    fn next(&self) -> u64 {
        self.window.released().frames
    }

    #[inline(always)]
    fn commit_of(&self, frame: u64) -> u64 {
        S::load_commit(self.shared.slot(frame))
    }

    /// Offset of the next body in the data ring.
    #[inline]
    fn data_at(&self) -> usize {
        (self.window.released().data & (self.window.capacity().data - 1)) as usize
    }

    /// Sequence of the next frame.
    #[inline(always)]
    fn expected(&self) -> u32 {
        (self.window.released().frames as u32).wrapping_add(1)
    }

    /// What the frame of the last lap left as a sequence in the slot of the next one.
    #[inline]
    fn left(&self) -> u32 {
        let (taken, slots) = (self.window.released().frames, self.window.capacity().frames);
        if taken < slots {
            0
        } else {
            ((taken - slots) as u32).wrapping_add(1)
        }
    }

    /// Whether more than `frames` frames have arrived, by reading the slot of the last of them.
    #[inline]
    fn has_more_than(&self, frames: u32) -> bool {
        let (sequence, _) = split_commit_word(self.commit_of(self.next() + u64::from(frames)));
        sequence == self.expected().wrapping_add(frames)
    }

    /// How far to stay behind a producer that streams, by what was consumed since this was asked last. 0: the ring is too small for the
    /// distance, which would leave the producer without credit.
    fn distance(&mut self) -> u32 {
        let consumed = self.window.released();
        let before = std::mem::replace(&mut self.polled, consumed);
        if let Some(bytes) = (consumed.data - before.data).checked_div(consumed.frames - before.frames) {
            let Credits { frames, data } = self.window.capacity();
            let distance = Stream::distance(bytes);
            let most = (frames / 8).min(data / 2 / bytes.max(1));
            self.distance = if u64::from(distance) > most { 0 } else { distance };
        }
        self.distance
    }

    /// Holds the next frame if it has arrived and its body lies in its slot. Returns it, and its body.
    #[inline(always)]
    fn hold_inline(&mut self) -> Option<(Held, *const u8)> {
        let next = self.next();
        let slot = self.shared.slot(next);
        let (sequence, len) = split_commit_word(S::load_commit(slot));
        if self.held.what != What::Nothing || sequence != (next as u32).wrapping_add(1) {
            return None;
        }
        let (words, len, what) = (take_words::<S>(self.takes, slot), len as usize, What::Inline);
        if What::of(words) != What::Inline || len > INLINE {
            return None;
        }
        self.held = Held { what, words, len };
        Some((self.held, self.shared.inline(slot)))
    }

    /// Holds the next frame, if it has arrived.
    fn hold(&mut self) -> Result<bool, LinkError> {
        match self.held.what {
            What::Inline | What::Data => return Ok(true),
            What::Violation => return Err(self.malformed("")),
            What::Nothing => {}
        }
        let (sequence, len) = split_commit_word(self.commit_of(self.next()));
        if sequence != self.expected() {
            return self.await_frame(sequence);
        }
        let (words, len) = (
            take_words::<S>(self.takes, self.shared.slot(self.next())),
            len as usize,
        );
        let what = What::of(words);
        if len as u64 > longest(what, self.window.capacity().data) {
            return Err(self.malformed(TOO_LONG));
        }
        if what == What::Data {
            self.shared.body_found(self.data_at(), len);
        }
        self.held = Held { what, words, len };
        Ok(true)
    }

    /// The next frame has not arrived. Its slot must be as the frame of the last lap left it.
    fn await_frame(&mut self, sequence: u32) -> Result<bool, LinkError> {
        if sequence != self.left() {
            return Err(self.malformed("a commit word that is neither new nor old"));
        }
        // In this order: a peer that is gone has stored all that it ever will.
        if self.shared.is_gone() {
            let (sequence, _) = split_commit_word(self.commit_of(self.next()));
            return if sequence == self.expected() {
                self.hold()
            } else {
                Err(LinkError::Closed)
            };
        }
        Ok(false)
    }

    /// Where the body of the held frame lies.
    fn body(&self) -> *const u8 {
        match self.held.what {
            What::Data => self.shared.data(self.data_at()),
            _ => self.shared.inline(self.shared.slot(self.next())),
        }
    }

    #[cold]
    #[inline(never)]
    fn malformed(&mut self, why: &'static str) -> LinkError {
        self.held.what = What::Violation;
        let why = *self.broken.get_or_insert(why);
        LinkError::Malformed(why)
    }

    /// Gives back the lines of the next `count` bodies, of `len` bytes each. Returns the bytes of the data ring that one of them takes.
    #[inline]
    fn release_body(&self, len: usize, count: usize) -> u64 {
        let bytes = footprint(len);
        // A longer one may have been staged: it is not read from the producer's cache.
        if self.takes && len < staging::LEAST {
            self.shared.take_body(self.data_at(), bytes as usize * count);
        }
        bytes
    }

    /// Releases the frame that is held; or publishes credits after one that was not, and that made them due.
    #[inline(never)]
    fn release_unusual(&mut self) {
        let data = match self.held.what {
            What::Inline => 0,
            What::Data => self.release_body(self.held.len, 1),
            What::Nothing => return self.settle(),
            What::Violation => return,
        };
        self.held.what = What::Nothing;
        if self.window.release(data) {
            self.settle();
        }
    }
}

#[cfg(test)]
impl<S> Consumer<S> {
    /// As if so many inline frames had passed.
    fn skip(&mut self, frames: u64) {
        self.window.skip_to(Credits { frames, data: 0 });
    }
}

impl<S: Shared> Inbound for Consumer<S> {
    type Body<'a>
        = Body<'a>
    where
        Self: 'a;

    const IN_ORDER: bool = true;

    #[inline(always)]
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        let (Held { words, len, .. }, ptr) = match self.hold_inline() {
            Some(held) => held,
            None if self.hold()? => (self.held, self.body()),
            None => return Ok(None),
        };
        // SAFETY: `Shared` promises `INLINE` or `size.data` readable bytes there as long as `self` lives, and `len`
        // was validated to be at most that before the frame was held.
        let body = unsafe { Body::new(ptr, len) };
        Ok(Some(Frame {
            sequence: self.expected(),
            words,
            body,
        }))
    }

    /// A peer that changes a header after this read it changes what the frame asks for, and nothing else: what is decided
    /// by these words is done by them.
    #[inline(always)]
    fn peek_plain(&mut self, kind: Kind) -> Option<(Header, Frame<Body<'_>>)> {
        let sequence = self.expected();
        let slot = self.shared.slot(self.next());
        let (stored, len) = split_commit_word(S::load_commit(slot));
        // A frame that is held was validated, and a ring that is broken stays so.
        if stored != sequence || self.held.what != What::Nothing {
            return None;
        }
        let words = take_words::<S>(self.takes, slot);
        let header = Header::parse_inline(words, kind)?;
        let len = len as usize;
        // The frame breaks the protocol, as `peek` finds.
        if len > INLINE {
            return None;
        }
        // SAFETY: `Shared` promises `INLINE` readable bytes there as long as `self` lives.
        let body = unsafe { Body::new(self.shared.inline(slot), len) };
        let frame = Frame {
            sequence,
            words,
            body,
        };
        Some((header, frame))
    }

    /// A frame that is not held is one of [`peek_plain`](Self::peek_plain).
    #[inline(always)]
    fn release(&mut self) {
        if self.held.what != What::Nothing || self.window.release(0) {
            self.release_unusual();
        }
    }

    /// Ends where credits are published, so that the producer gets them as early as those of single frames.
    #[inline(always)]
    fn peek_run(
        &mut self,
        kind: Kind,
        most: impl FnOnce(usize) -> usize,
    ) -> Option<(Header, FrameRun<Body<'_>>)> {
        let (next, sequence, takes) = (self.next(), self.expected(), self.takes);
        let slot_of = self.shared.slots();
        let commit = S::load_commit(slot_of(next));
        let commit_is_alike = |further: u64| {
            let expected = commit.wrapping_add(commit_word(further as u32, 0));
            S::load_commit(slot_of(next + further)) == expected
        };
        // The line of a slot further on is the peer's until the next frame has arrived.
        let (stored, len) = split_commit_word(commit);
        if stored != sequence || self.held.what == What::Violation || !commit_is_alike(MIN_RUN as u64 - 1) {
            return None;
        }
        let words = take_words::<S>(takes, slot_of(next));
        let header = Header::parse_plain(words, kind)?;
        let (len, data) = (len as usize, self.window.capacity().data);
        let what = What::of(words);
        if len as u64 > longest(what, data) {
            return None;
        }
        let (ptr, stride, fits, bytes) = if what == What::Inline {
            let slots = self.window.capacity().frames;
            let lap = slots - (next & (slots - 1));
            (self.shared.inline_run(next), S::INLINE_STRIDE, lap, 0)
        } else {
            let (at, bytes) = (self.data_at(), footprint(len));
            let stride = bytes.max(1);
            self.shared.body_found(at, len);
            let ptr = self.shared.data(at).cast_const();
            (ptr, stride as usize, data / stride, bytes)
        };
        let most = fits.min(most(len) as u64).min(self.window.left(bytes));
        let mut count = 1;
        while count < most && commit_is_alike(count) && take_words::<S>(takes, slot_of(next + count)) == words
        {
            count += 1;
        }
        let count = count as usize;
        if count < MIN_RUN {
            return None;
        }
        self.held = Held { what, words, len };
        // SAFETY: `Shared` promises so many readable bytes, as long as `self` lives: to the last slot of this lap at most, or to one length
        // of the data ring. `len` is at most what `longest` says.
        let bodies = unsafe { Body::new(ptr, (count - 1) * stride + len) };
        let run = FrameRun {
            sequence,
            len,
            bodies,
            stride,
            count,
        };
        Some((header, run))
    }

    fn release_run(&mut self, count: usize, len: usize) {
        let data = match std::mem::replace(&mut self.held.what, What::Nothing) {
            What::Data => self.release_body(len, count),
            _ => 0,
        };
        if self.window.release_all(count as u64, data) {
            self.settle();
        }
    }

    #[inline]
    fn settle(&mut self) {
        if let Some(Credits { frames, data }) = self.window.publish() {
            self.shared.store_credits([frames, data]);
            self.shared.wake_peer();
        }
    }

    #[inline(always)]
    fn is_empty(&mut self) -> bool {
        let (sequence, _) = split_commit_word(self.commit_of(self.next()));
        sequence != self.expected()
    }

    #[inline]
    fn prefetch_frame(&self) {
        self.shared.slot_expected(self.next());
    }

    /// What it reads decides nothing: the length is that of a hint.
    #[inline]
    fn prefetch_body(&self) {
        let slot = self.shared.slot(self.next());
        let (sequence, len) = split_commit_word(S::load_commit(slot));
        if sequence == self.expected() && What::of(S::load_words(slot)) == What::Data {
            self.shared.body_found(self.data_at(), len as usize);
        }
    }

    #[inline]
    fn begin_poll(&mut self) {
        if self.stream.waits() {
            let mut stream = std::mem::take(&mut self.stream);
            let distance = self.distance();
            stream.fall_behind(distance, |frames| self.has_more_than(frames), ticks);
            self.stream = stream;
        }
    }

    #[inline]
    fn must_begin_poll(&self) -> bool {
        self.stream.waits()
    }

    #[inline]
    fn end_poll(&mut self, found: bool) {
        self.stream.end_poll(found);
    }

    #[inline]
    fn first_quantum(&self) -> usize {
        1
    }
}

impl<S: Shared> Park for Consumer<S> {
    fn arm(&mut self) -> bool {
        self.shared.announce(SideState::Sleeps);
        self.is_idle()
    }

    fn disarm(&mut self) {
        self.shared.announce(SideState::Polls);
    }

    fn park(&mut self) {
        self.shared.announce(SideState::Parked);
    }

    fn is_idle(&mut self) -> bool {
        self.held.what == What::Nothing
            && split_commit_word(self.commit_of(self.next())).0 != self.expected()
            && !self.shared.is_gone()
    }
}
