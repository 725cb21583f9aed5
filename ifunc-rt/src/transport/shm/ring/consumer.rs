//! The reading side of a ring.

use ifunc_abi::frame::{FrameFlags, Header, INLINE, InstallHead, Kind, commit_word, split_commit_word};

use super::shared::{Shared, SideState};
use super::stream::Stream;
use super::{footprint, staging};
use crate::ticks::ticks;
use crate::transport::window::{Credits, ReceiveWindow};
use crate::transport::{Body, Frame, FrameRun, Inbound, LinkError, MIN_RUN, Park, RingSize};

/// The reading side of a ring.
pub(crate) struct Consumer<S> {
    shared: S,
    held: Held,
    /// Whether it stores into the lines that it has read ([`line_owner`](crate::transport::shm::line_owner)).
    takes: bool,
    /// Frames and bytes of the data ring released.
    window: ReceiveWindow,
    /// Why the ring cannot be read any more.
    broken: Option<&'static str>,
    pub(super) stream: Stream,
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

/// Whether the body of a frame with these words is an image behind its head. The target most often has the image, and reads only the head
/// then. The other lines stay in the cache of the producer, which writes a later body there.
#[inline]
fn is_image(words: [u64; 2]) -> bool {
    Header::parse_plain(words, Kind::Install).is_some()
}

/// How much of a body of `len` bytes is most often read.
#[inline]
fn to_read(words: [u64; 2], len: usize) -> usize {
    match is_image(words) {
        true => len.min(InstallHead::SIZE),
        false => len,
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
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
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
    pub(super) fn has_more_than(&self, frames: u32) -> bool {
        let (sequence, _) = split_commit_word(self.commit_of(self.next() + u64::from(frames)));
        sequence == self.expected().wrapping_add(frames)
    }

    /// How far to stay behind a producer that streams, by what was consumed since this was asked last. 0: the ring is too small for the
    /// distance, which would leave the producer without credit.
    pub(super) fn distance(&mut self) -> u32 {
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
            self.shared.body_found(self.data_at(), to_read(words, len));
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
    fn release_bodies(&self, len: usize, count: usize) -> u64 {
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
            What::Data => {
                let Held { words, len, .. } = self.held;
                match is_image(words) {
                    // A store to the line of the head would delay the answer.
                    true => footprint(len),
                    false => self.release_bodies(len, 1),
                }
            }
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
    pub(super) fn skip(&mut self, frames: u64) {
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
            What::Data => self.release_bodies(len, count),
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
        let words = S::load_words(slot);
        if sequence == self.expected() && What::of(words) == What::Data {
            self.shared
                .body_found(self.data_at(), to_read(words, len as usize));
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
    fn end_poll(&mut self, found: bool, settles: bool) {
        if settles {
            self.settle();
        }
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
