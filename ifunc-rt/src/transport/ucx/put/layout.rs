//! What lies where in the memory that a side gives its peer the key of.
//!
//! ```text
//! +0     credits of the direction away from here: frames in bits 0–31, lines in 32–63     put by the peer
//! +128   number of the peer's last announcement that it is about to sleep                 put by the peer
//! +256   frames committed; credits given, as above                                        got by the peer
//! +512   slots of 64 bytes                                                                put by the peer
//! ...    ring of lines of 64 bytes                                                        put by the peer
//! ```
//!
//! | bytes of a slot | of a frame with a short body | of another, which lies in the [ring](super::ring) |
//! |---|---|---|
//! | 0–31 | body | |
//! | 32–55 | the three words of its header | |
//! | 56–63 | commit word: nonce << 32 \| sequence | commit word: !nonce << 32 \| sequence |
//!
//! Numbers are in the machine's own order: both sides run little-endian machines.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ::ucx::Memory;
use ifunc_abi::frame::{BODY_ALIGN, WORDS};

use crate::transport::RingSize;
use crate::transport::ucx::header::{pack, unpack};
use crate::transport::window::Credits;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "words are put as they lie in memory"
);

/// Where the credits are.
pub(crate) const CREDITS: usize = 0;
/// Where the peer announces its sleep.
pub(crate) const ANNOUNCED: usize = 128;
/// Where it stands what was put.
pub(crate) const POSTED: usize = 256;
const SLOTS: usize = 512;
/// The longest body that lies in its slot. The header is behind it.
pub(crate) const SHORT: usize = 32;
/// Length of a slot without its commit word.
pub(crate) const COMMIT_AT: usize = SHORT + WORDS;
const _: () = assert!(COMMIT_AT + 8 == BODY_ALIGN);
/// Multiple at which the ring begins.
const PAGE: usize = 4096;

/// What a side has put: what its peer must have seen before it may sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) frames: u32,
    pub(crate) credits: Credits,
}

impl Posted {
    /// Length of the words that are got.
    pub(crate) const LEN: usize = 16;

    /// Of the words as they lie in memory.
    pub(crate) fn decode(words: &[u8; Self::LEN]) -> Self {
        let words: [u64; 2] = zerocopy::transmute!(*words);
        Self {
            frames: words[0] as u32,
            credits: unpack(words[1]),
        }
    }
}

/// Places in the memory of the side that receives in a ring of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout(RingSize);

impl Layout {
    /// `size` is valid.
    pub(crate) fn new(size: RingSize) -> Self {
        debug_assert!(size.is_valid());
        Self(size)
    }

    pub(crate) fn size(self) -> RingSize {
        self.0
    }

    /// Lines of the ring: the bodies' and one for each header, so that headers take nothing away from bodies. Short frames take none.
    pub(crate) fn lines(self) -> u32 {
        self.0.data / BODY_ALIGN as u32 + self.0.slots
    }

    /// Frames and lines that may be on their way.
    pub(crate) fn capacity(self) -> Credits {
        Credits {
            frames: self.0.slots.into(),
            data: self.lines().into(),
        }
    }

    /// The slot of a frame.
    pub(crate) fn slot(self, sequence: u32) -> usize {
        let slot = sequence.wrapping_sub(1) & (self.0.slots - 1);
        SLOTS + slot as usize * BODY_ALIGN
    }

    /// The commit word of a frame.
    pub(crate) fn commit(self, sequence: u32) -> usize {
        self.slot(sequence) + COMMIT_AT
    }

    /// A line of the ring.
    pub(crate) fn line(self, line: u32) -> usize {
        debug_assert!(line < self.lines());
        let slots = (SLOTS + self.0.slots as usize * BODY_ALIGN).next_multiple_of(PAGE);
        slots + line as usize * BODY_ALIGN
    }

    /// Length of the memory.
    pub(crate) fn len(self) -> usize {
        self.line(0) + self.lines() as usize * BODY_ALIGN
    }
}

/// A side's own memory. It is mapped as long as there is a view of it. What a peer writes is arbitrary, and validated.
#[derive(Clone, Debug)]
pub(crate) struct View<M = Arc<Memory>> {
    memory: M,
    layout: Layout,
    /// The half of the commit words that makes them this connection's.
    nonce: u32,
}

impl<M: Deref<Target: AsRef<[AtomicU64]>>> View<M> {
    /// `memory` is as long as the layout at least.
    pub(crate) fn new(memory: M, layout: Layout, nonce: u32) -> Self {
        let len = size_of_val((*memory).as_ref());
        assert!(layout.len() <= len, "too little memory for a ring");
        Self {
            memory,
            layout,
            nonce,
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        (*self.memory).as_ref()
    }

    /// A word, which lies at a multiple of 8 inside the memory.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8));
        &self.words()[offset / 8]
    }

    /// Makes everything that is polled zero: memory of UCX's may have been used before.
    pub(crate) fn clear(&self) {
        let words = [CREDITS, ANNOUNCED, POSTED, POSTED + 8].into_iter();
        let commits = (0..self.layout.size().slots).map(|sequence| self.layout.commit(sequence));
        for offset in words.chain(commits) {
            self.word(offset).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// What the peer released, as it says.
    pub(crate) fn credits(&self) -> Credits {
        unpack(self.word(CREDITS).load(Ordering::Acquire))
    }

    /// The peer's last announcement.
    pub(crate) fn announced(&self) -> u64 {
        self.word(ANNOUNCED).load(Ordering::Acquire)
    }

    /// As if the peer had announced this.
    #[cfg(test)]
    pub(crate) fn pretend_announced(&self, number: u64) {
        self.word(ANNOUNCED).store(number, Ordering::Release);
    }

    /// Frames committed by this side.
    pub(crate) fn frames_posted(&self) -> u32 {
        self.word(POSTED).load(Ordering::Relaxed) as u32
    }

    /// Posts that this many frames are committed: before [`announced`](Self::announced) is read after a fence.
    pub(crate) fn post_frames(&self, frames: u32) {
        self.word(POSTED).store(frames.into(), Ordering::Release);
    }

    /// Says that these credits are given.
    pub(crate) fn post_credits(&self, credits: Credits) {
        self.word(POSTED + 8).store(pack(credits), Ordering::Release);
    }

    /// Whether the frame of this number has landed; what it consists of may then be read.
    pub(crate) fn has_landed(&self, sequence: u32) -> bool {
        self.landed(sequence).is_some()
    }

    /// The form of the frame of this number, if it has landed; what it consists of may then be read.
    #[inline]
    pub(crate) fn landed(&self, sequence: u32) -> Option<FrameForm> {
        let word = self.word(self.layout.commit(sequence)).load(Ordering::Acquire);
        [FrameForm::Short, FrameForm::Long]
            .into_iter()
            .find(|&form| word == commit_word(self.nonce, sequence, form))
    }

    /// The three words of a header.
    pub(crate) fn header(&self, offset: usize) -> [u64; 3] {
        [0, 8, 16].map(|word| self.word(offset + word).load(Ordering::Relaxed))
    }

    /// Where a body begins.
    pub(crate) fn body(&self, offset: usize) -> *const u8 {
        self.words().as_ptr().cast::<u8>().wrapping_add(offset)
    }
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameForm {
    /// In its slot.
    Short,
    /// In the ring.
    Long,
}

/// What says that a frame has landed.
#[inline]
pub(crate) fn commit_word(nonce: u32, sequence: u32, form: FrameForm) -> u64 {
    let nonce = match form {
        FrameForm::Short => nonce,
        FrameForm::Long => !nonce,
    };
    u64::from(nonce) << 32 | u64::from(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for (slots, data) in [
            (2, RingSize::MIN_DATA),
            (4096, 2 << 20),
            (RingSize::MAX_SLOTS, RingSize::MAX_DATA),
        ] {
            let layout = Layout::new(RingSize { slots, data });
            assert!(POSTED + Posted::LEN <= layout.slot(1));
            assert!(layout.slot(1).is_multiple_of(BODY_ALIGN));
            assert!(layout.slot(slots) + BODY_ALIGN <= layout.line(0));
            assert_eq!(layout.commit(slots + 1), layout.commit(1));
            // Sequences wrap as slots do.
            assert_eq!(layout.commit(0), layout.commit(slots));
            assert_eq!(layout.line(layout.lines() - 1) + BODY_ALIGN, layout.len());
        }
    }

    #[test]
    fn the_ring_begins_at_the_page_behind_the_slots() {
        let at = |slots, line| {
            let data = RingSize::MIN_DATA;
            Layout::new(RingSize { slots, data }).line(line)
        };
        assert_eq!((at(2, 0), at(2, 3)), (4096, 4096 + 192));
        // 512 bytes, and 64 for each slot.
        assert_eq!((at(32, 0), at(64, 0), at(128, 0)), (4096, 8192, 12_288));
    }

    #[test]
    fn words_lie_where_it_is_stated_and_all_of_them_are_cleared() {
        let layout = Layout::new(RingSize {
            slots: 4,
            data: RingSize::MIN_DATA,
        });
        let memory: Vec<_> = (0..layout.len() / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        let memory = Arc::new(memory);
        let view = View::new(Arc::clone(&memory), layout, 7);
        view.clear();
        let cleared = [0, 128, 256, 264, 568, 632, 696, 760];
        let is_zero = |offset: usize| memory[offset / 8].load(Ordering::Relaxed) == 0;
        assert!(
            (0..layout.len())
                .step_by(8)
                .filter(|&offset| is_zero(offset))
                .eq(cleared)
        );

        let credits = Credits { frames: 5, data: 9 };
        view.post_frames(3);
        view.post_credits(credits);
        let words = [256, 264].map(|offset| memory[offset / 8].load(Ordering::Relaxed));
        assert_eq!(words, [3, 9 << 32 | 5]);
        assert_eq!(view.frames_posted(), 3);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let posted = Posted::decode(bytes.as_slice().try_into().unwrap());
        assert_eq!(posted, Posted { frames: 3, credits });
    }

    #[test]
    fn only_the_number_of_this_lap_and_connection_has_landed() {
        let layout = Layout::new(RingSize {
            slots: 2,
            data: RingSize::MIN_DATA,
        });
        let memory: Vec<_> = (0..layout.len() / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        let view = View::new(Arc::new(memory), layout, 7);
        view.clear();
        assert!((0..5).all(|sequence| !view.has_landed(sequence)));
        let put = |nonce, sequence, form| {
            let word = view.word(layout.commit(sequence));
            word.store(commit_word(nonce, sequence, form), Ordering::Relaxed);
        };
        for form in [FrameForm::Short, FrameForm::Long] {
            put(7, 1, form);
            assert_eq!(view.landed(1), Some(form));
            assert!(view.has_landed(1) && !view.has_landed(3) && !view.has_landed(u32::MAX));
            put(6, 3, form);
            assert!(!view.has_landed(1) && !view.has_landed(3));
        }
    }
}
