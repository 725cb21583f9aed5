//! What lies where in the memory that a side gives its peer the key of.
//!
//! ```text
//! +0     credits of the direction away from here: frames in bits 0–31, lines in 32–63     put by the peer
//! +128   number of the peer's last announcement that it is about to sleep                 put by the peer
//! +256   frames posted; credits given, as above                                           got by the peer
//! +512   slots of 128 bytes                                                               put by the peer
//! ...    ring of lines of 64 bytes                                                        put by the peer
//! ```
//!
//! | bytes of a slot | |
//! |---|---|
//! | 0–95 | a body of 33 to 96 bytes; a longer one lies in the [ring](super::ring) |
//! | 64–95 | a body of up to 32 bytes: the slot's second line has all of the frame, and the first one is not put |
//! | 96–119 | the three words of the frame's header, the first of which has its number |
//! | 120–127 | checksum of the header, the connection's nonce, and a body that lies here |
//!
//! UCX does not say in which order the bytes of one put land. So a slot shows by itself that it is whole: its receiver reads the number, and then
//! whether the checksum is right. A frame with a short body is one put, and nothing has to be put after it. A word that equals the one before it in
//! the slot need not have landed: no later frame finds it late, because its slot is put again only after a credit, a round trip later.
//!
//! Numbers are in the machine's own order: both sides run little-endian machines.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ::ucx::Memory;
use ifunc_abi::frame::{BODY_ALIGN, WORDS, split_commit_word};

use crate::transport::RingSize;
use crate::transport::ucx::header::{pack, unpack};
use crate::transport::ucx::packet::{BODY, Packet};
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
/// Length of a slot: two lines.
pub(crate) const SLOT: usize = 2 * BODY_ALIGN;
/// The longest body that lies in its slot.
pub(crate) const SHORT: usize = 96;
/// The longest body that lies in the second line of its slot.
const ONE_LINE: usize = SHORT - BODY_ALIGN;
// A long body begins in its packet where `body_at` says, and the least packet has room for a slot.
const _: () = assert!(body_at(usize::MAX) == BODY && SLOT <= BODY + Packet::LEAST);
/// Where the header lies in a slot: behind a short body.
pub(crate) const HEADER_AT: usize = SHORT;
/// Where the checksum lies in a slot.
const CHECKSUM_AT: usize = HEADER_AT + WORDS;
const WORDS_OF_SLOT: usize = SLOT / 8;
const _: () = assert!(CHECKSUM_AT + 8 == SLOT);
/// Multiple at which the ring begins.
const PAGE: usize = 4096;

/// Where a body of this length begins in its slot. Of one that does not lie there: where it begins in the buffer that it is put from, whose beginning
/// is like a slot.
#[inline]
pub(crate) const fn body_at(len: usize) -> usize {
    if len > ONE_LINE && len <= SHORT {
        0
    } else {
        BODY_ALIGN
    }
}

/// The words of a body that lie in its slot, and what is behind it: zeros, if the peer keeps to the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InSlot {
    /// Of a body in the second line.
    OneLine([u64; 4]),
    /// Of one in both lines.
    TwoLines([u64; 12]),
    /// The body lies elsewhere.
    None,
}

impl InSlot {
    /// Of a body of this length, in a slot that has this word at an offset.
    #[inline(always)]
    pub(crate) fn of(len: usize, word: impl Fn(usize) -> u64) -> Self {
        match len {
            0..=ONE_LINE => Self::OneLine(std::array::from_fn(|at| word(BODY_ALIGN + at * 8))),
            _ if len <= SHORT => Self::TwoLines(std::array::from_fn(|at| word(at * 8))),
            _ => Self::None,
        }
    }
}

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

    /// Lines of the ring. Short bodies take none.
    pub(crate) fn lines(self) -> u32 {
        self.0.data / BODY_ALIGN as u32
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
        SLOTS + slot as usize * SLOT
    }

    /// A line of the ring.
    pub(crate) fn line(self, line: u32) -> usize {
        debug_assert!(line < self.lines());
        let slots = (SLOTS + self.0.slots as usize * SLOT).next_multiple_of(PAGE);
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
    /// What makes checksums this connection's: UCX may reuse the memory of an earlier one.
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
        let headers = (0..self.layout.size().slots).map(|sequence| self.layout.slot(sequence) + HEADER_AT);
        for offset in words.chain(headers) {
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

    /// Frames posted by this side.
    pub(crate) fn frames_posted(&self) -> u32 {
        self.word(POSTED).load(Ordering::Relaxed) as u32
    }

    /// Says that this many frames are posted: before [`announced`](Self::announced) is read after a fence.
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

    /// Whether the slot has the number of this frame. Its other words may not have landed yet.
    #[inline]
    pub(crate) fn begins(&self, sequence: u32) -> bool {
        let word = self.word(self.layout.slot(sequence) + HEADER_AT);
        split_commit_word(word.load(Ordering::Relaxed)).0 == sequence
    }

    /// The header of the frame of this number, if it has landed; what the frame consists of may then be read.
    #[inline(always)]
    pub(crate) fn landed(&self, sequence: u32) -> Option<[u64; 3]> {
        let slot = self.layout.slot(sequence) / 8;
        let slot = self.words()[slot..].first_chunk::<WORDS_OF_SLOT>()?;
        let word = |at: usize| slot[at / 8].load(Ordering::Relaxed);
        let first = word(HEADER_AT);
        let (number, len) = split_commit_word(first);
        if number != sequence {
            return None;
        }
        let header = [first, word(HEADER_AT + 8), word(HEADER_AT + 16)];
        let body = InSlot::of(len as usize, word);
        if word(CHECKSUM_AT) != checksum(self.nonce, header, body) {
            return None;
        }
        // A body in the ring was put before the slot.
        fence(Ordering::Acquire);
        Some(header)
    }

    /// Where a body begins.
    pub(crate) fn body(&self, offset: usize) -> *const u8 {
        self.words().as_ptr().cast::<u8>().wrapping_add(offset)
    }
}

/// The end of a slot behind the body: the header, and the checksum of a frame whose slot has this of its body.
#[inline]
pub(crate) fn trailer(nonce: u32, header: [u64; 3], body: InSlot) -> [u64; 4] {
    let [first, second, third] = header;
    [first, second, third, checksum(nonce, header, body)]
}

/// What the words of a body are combined with, and with the nonce.
const BODY_KEYS: [u64; 12] = [
    0x1d8e_4e27_c47d_124f,
    0xeb44_acca_b455_d165,
    0x9e37_79b9_7f4a_7c15,
    0xd6e8_feb8_6659_fd93,
    0x910a_2dec_8902_5cc1,
    0x9758_35de_1c97_56ce,
    0x1d0b_14e4_db01_8fed,
    0x6e73_e372_e233_8aca,
    0x6303_3b0c_a389_c35a,
    0xbd64_a5d9_adef_e000,
    0x63cb_e1e4_5932_0dd7,
    0x9e56_51b0_ef95_3636,
];

/// The checksum of a slot. A slot some of whose words are an older frame's has another one, but for one in 2⁶⁴: words are folded in pairs, as
/// [wyhash](https://github.com/wangyi-fudan/wyhash) does it. The nonce is in each pair of a body's, so its author, who does not know the nonce, cannot make
/// a body of which words do not count.
#[inline]
fn checksum(nonce: u32, header: [u64; 3], body: InSlot) -> u64 {
    let fold = |one: u64, other: u64| {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    };
    let nonce = u64::from(nonce).wrapping_mul(0x5899_65cc_7537_4cc3);
    let [first, second, third] = header;
    let begin = fold(first ^ 0xa076_1d64_78bd_642f, second ^ 0xe703_7ed1_a0b4_28db);
    let end = fold(third ^ 0x8ebc_6af0_9c88_c6e3, nonce ^ 0xa0b4_28db_e703_7ed1);
    let sum = begin.wrapping_add(end);
    let of_body = |words: &[u64]| {
        let (pairs, _) = words.as_chunks::<2>();
        let (keys, _) = BODY_KEYS.as_chunks::<2>();
        let folded = pairs
            .iter()
            .zip(keys)
            .map(|(words, keys)| fold(words[0] ^ keys[0] ^ nonce, words[1] ^ keys[1] ^ nonce));
        folded.fold(sum, u64::wrapping_add)
    };
    match body {
        InSlot::OneLine(words) => of_body(&words),
        InSlot::TwoLines(words) => of_body(&words),
        InSlot::None => sum,
    }
}

#[cfg(test)]
mod tests {
    use ifunc_abi::frame::commit_word;

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
            assert!(layout.slot(slots) + SLOT <= layout.line(0));
            assert_eq!(layout.slot(slots + 1), layout.slot(1));
            // Sequences wrap as slots do.
            assert_eq!(layout.slot(0), layout.slot(slots));
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
        // 512 bytes, and 128 for each slot.
        assert_eq!((at(16, 0), at(32, 0), at(64, 0)), (4096, 8192, 12_288));
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
        let cleared = [0, 128, 256, 264, 608, 736, 864, 992];
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

    type Small = View<Arc<Vec<AtomicU64>>>;

    fn small_view() -> Small {
        let layout = Layout::new(RingSize {
            slots: 2,
            data: RingSize::MIN_DATA,
        });
        let memory: Vec<_> = (0..layout.len() / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        let view = View::new(Arc::new(memory), layout, 7);
        view.clear();
        view
    }

    /// The words of a slot with a frame of this number and length. Each differs from that of any other frame.
    fn slot_of(sequence: u32, len: u32, nonce: u32) -> [u64; WORDS_OF_SLOT] {
        let word = |at: usize| u64::from(sequence) << 60 | u64::from(len) << 8 | (at as u64 + 1);
        let header = [commit_word(sequence, len), word(13 * 8), word(14 * 8)];
        let trailer = trailer(nonce, header, InSlot::of(len as usize, word));
        std::array::from_fn(|at| if at < 12 { word(at * 8) } else { trailer[at - 12] })
    }

    fn put(view: &Small, sequence: u32, words: &[u64; WORDS_OF_SLOT], lands: impl Fn(usize) -> bool) {
        let slot = view.layout().slot(sequence);
        for (at, word) in words.iter().enumerate().filter(|(at, _)| lands(*at)) {
            view.word(slot + at * 8).store(*word, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_frame_has_landed_when_all_its_words_are_there() {
        let view = small_view();
        let lens = [8, ONE_LINE as u32 + 1, SHORT as u32 + 1];
        for (len, len_before) in lens.into_iter().flat_map(|len| lens.map(|before| (len, before))) {
            let (old, new) = (slot_of(1, len_before, 7), slot_of(3, len, 7));
            // Of a long body nothing is here.
            let first = if len as usize <= SHORT {
                body_at(len as usize) / 8
            } else {
                HEADER_AT / 8
            };
            assert!((first..new.len()).all(|at| old[at] != new[at]));
            // Two lines have too many words to try all of their sets: up to three that have landed, or have not; one of the lines; the
            // trailer alone.
            let is_tried = |some: u32| {
                let parts = [0x00ff, 0xff00, 0xf000];
                first > 0 || some.count_ones() <= 3 || some.count_zeros() <= 16 + 3 || parts.contains(&some)
            };
            for some in
                (0..1u32 << new.len()).filter(|&some| some & ((1 << first) - 1) == 0 && is_tried(some))
            {
                put(&view, 1, &old, |_| true);
                assert!(view.has_landed(1) && !view.has_landed(3));
                put(&view, 3, &new, |at| some & 1 << at != 0);
                let is_whole = (first..new.len()).all(|at| some & 1 << at != 0);
                assert_eq!(view.has_landed(3), is_whole, "{len}: {some:016b}");
            }
        }
    }

    /// Whatever words a body has: without the nonce, one of them could make that the other one of its pair does not count.
    #[test]
    fn no_word_of_a_body_hides_another() {
        let header = [commit_word(3, 96), 5, 6];
        for hiding in 0..BODY_KEYS.len() {
            for key in [BODY_KEYS[hiding], !BODY_KEYS[hiding]] {
                let mut body = [0; 12];
                body[hiding] = key;
                let before = checksum(7, header, InSlot::TwoLines(body));
                body[hiding ^ 1] = 1;
                assert_ne!(checksum(7, header, InSlot::TwoLines(body)), before);
            }
        }
    }

    /// Another one is another version of the wire format.
    #[test]
    fn the_checksum_is_that_of_this_version() {
        let header = [commit_word(3, 32), 5, 6];
        let two = InSlot::TwoLines(std::array::from_fn(|at| at as u64 + 1));
        let sums = [InSlot::None, InSlot::OneLine([1, 2, 3, 4]), two].map(|body| checksum(7, header, body));
        assert_eq!(
            sums,
            [
                0x3d9a_5b56_4ac3_af82,
                0xc8e2_7e6e_3b5e_64c8,
                0x3b3f_15b3_6a8c_6d2a
            ]
        );
    }

    #[test]
    fn only_the_number_of_this_lap_and_connection_has_landed() {
        for len in [8, ONE_LINE as u32 + 1, SHORT as u32 + 1] {
            let view = small_view();
            let words = slot_of(1, len, 7);
            assert!((0..5).all(|sequence| !view.has_landed(sequence)));
            put(&view, 1, &words, |_| true);
            assert_eq!(view.landed(1).map(|header| header[0]), Some(commit_word(1, len)));
            assert!(!view.has_landed(3) && !view.has_landed(u32::MAX));
            put(&view, 3, &slot_of(3, len, 6), |_| true);
            assert!(!view.has_landed(1) && !view.has_landed(3));
        }
        let mut view = small_view();
        view.nonce = 0;
        put(&view, 1, &[0; WORDS_OF_SLOT], |_| true);
        assert!((0..5).all(|sequence| !view.has_landed(sequence)));
    }
}
