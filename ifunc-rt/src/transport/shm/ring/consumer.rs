//! The reading side of a ring.

use ifunc_abi::frame::{FrameFlags, INLINE, split_commit_word};

use super::producer::footprint;
use super::shared::Shared;
use super::stream::Stream;
use crate::transport::window::{Credits, ReceiveWindow};
use crate::transport::{Body, Frame, Inbound, LinkError, Park, RingSize};

/// The reading side of a ring.
pub(crate) struct Consumer<S> {
    shared: S,
    held: Held,
    /// Frames and bytes of the data ring released.
    window: ReceiveWindow,
    /// Why the ring cannot be read any more.
    broken: Option<&'static str>,
    stream: Stream,
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

impl<S: Shared> Consumer<S> {
    /// The reading side of an unused ring of `size`, which is what `shared` reaches.
    pub(in super::super) fn new(shared: S, size: RingSize) -> Self {
        Self {
            shared,
            held: Held {
                what: What::Nothing,
                words: [0; 2],
                len: 0,
            },
            window: ReceiveWindow::new(Credits::of(size, 1)),
            broken: None,
            stream: Stream::default(),
        }
    }

    #[inline(always)]
    fn slot(&self) -> usize {
        (self.window.released().frames & (self.window.capacity().frames - 1)) as usize
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

    /// Whether more than `frames` frames have arrived, by reading the slot of the last of them. `true` also where the ring
    /// has few slots.
    #[inline]
    fn has_more_than(&self, frames: u32) -> bool {
        let (taken, slots) = (self.window.released().frames, self.window.capacity().frames);
        let far = (taken + u64::from(frames)) & (slots - 1);
        let (sequence, _) = split_commit_word(self.shared.load_commit(far as usize));
        slots < 8 * u64::from(frames) || sequence == self.expected().wrapping_add(frames)
    }

    /// The next frame has not arrived. Its slot must be as the frame of the last lap left it.
    #[inline(never)]
    fn peek_unexpected(&mut self, sequence: u32) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if sequence != self.left() {
            return Err(self.malformed("a commit word that is neither new nor old"));
        }
        // In this order: a peer that is gone has stored all that it ever will.
        if self.shared.is_gone() {
            let (sequence, _) = split_commit_word(self.shared.load_commit(self.slot()));
            return if sequence == self.expected() {
                self.peek()
            } else {
                Err(LinkError::Closed)
            };
        }
        Ok(None)
    }

    /// The frame in the slot of the next one, whose body does not lie in the slot.
    fn peek_data(&mut self, words: [u64; 2], len: usize) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if len as u64 > self.window.capacity().data / 2 {
            return Err(self.malformed("a body larger than a frame can have"));
        }
        self.shared.body_found(self.data_at(), len);
        let what = What::Data;
        self.held = Held { what, words, len };
        Ok(Some(self.frame()))
    }

    /// What the last peek returned.
    #[cold]
    fn peek_again(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.held.what == What::Violation {
            return Err(self.malformed(""));
        }
        Ok(Some(self.frame()))
    }

    /// The held frame.
    #[inline(always)]
    fn frame(&self) -> Frame<Body<'_>> {
        let Held { what, words, len } = self.held;
        let ptr = match what {
            What::Data => self.shared.data(self.data_at()),
            _ => self.shared.inline(self.slot()),
        };
        // SAFETY: `Shared` promises `INLINE` or `size.data` readable bytes there as long as `self` lives, and `len`
        // was validated to be at most that before the frame was held.
        let body = unsafe { Body::new(ptr, len) };
        Frame {
            sequence: self.expected(),
            words,
            body,
        }
    }

    #[cold]
    fn malformed(&mut self, why: &'static str) -> LinkError {
        self.held.what = What::Violation;
        let why = *self.broken.get_or_insert(why);
        LinkError::Malformed(why)
    }

    fn release_data(&mut self) {
        if self.window.release(footprint(self.held.len)) {
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

    #[inline(always)]
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.held.what != What::Nothing {
            return self.peek_again();
        }
        let slot = self.slot();
        let (sequence, len) = split_commit_word(self.shared.load_commit(slot));
        if sequence != self.expected() {
            return self.peek_unexpected(sequence);
        }
        let (words, len) = (self.shared.load_words(slot), len as usize);
        if words[0] >> 8 & u64::from(FrameFlags::INLINE.bits()) == 0 {
            return self.peek_data(words, len);
        }
        if len > INLINE {
            return Err(self.malformed("a body larger than a frame can have"));
        }
        let what = What::Inline;
        self.held = Held { what, words, len };
        Ok(Some(self.frame()))
    }

    #[inline(always)]
    fn release(&mut self) {
        match self.held.what {
            What::Nothing | What::Violation => return,
            What::Data => self.release_data(),
            What::Inline => {
                if self.window.release(0) {
                    self.settle();
                }
            }
        }
        self.held.what = What::Nothing;
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
        let (sequence, _) = split_commit_word(self.shared.load_commit(self.slot()));
        self.held.what == What::Nothing && sequence == self.left() && !self.shared.is_gone()
    }

    #[inline]
    fn begin_poll(&mut self) {
        if self.stream.is_stream() {
            let mut stream = std::mem::take(&mut self.stream);
            stream.fall_behind(|frames| self.has_more_than(frames));
            self.stream = stream;
        }
    }

    #[inline]
    fn end_poll(&mut self, frames: usize) {
        self.stream.end_poll(frames > 0);
    }

    #[inline]
    fn first_quantum(&self) -> usize {
        1
    }
}

impl<S: Shared> Park for Consumer<S> {
    fn arm(&mut self) -> bool {
        self.shared.announce_sleep();
        self.is_idle()
    }

    fn disarm(&mut self) {
        self.shared.withdraw_sleep();
    }

    fn park(&mut self) {
        self.shared.announce_parked();
    }

    fn is_idle(&mut self) -> bool {
        self.held.what == What::Nothing
            && split_commit_word(self.shared.load_commit(self.slot())).0 != self.expected()
            && !self.shared.is_gone()
    }
}
