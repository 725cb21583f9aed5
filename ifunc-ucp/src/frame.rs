//! The frame: a message with its code, complete in itself.
//!
//! ```text
//! ┌──────┬─────────┬─────┬───────┬─────────┐
//! │ head │ payload │ pad │ image │ trailer │
//! └──────┴─────────┴─────┴───────┴─────────┘
//! head     0 mark · 4 check of the words from 8 on · 8 length of the frame · 12 of the payload · 16 of the image · 20 offset of the
//!          payload: u16 · 22 index of the entry: u16 · 24 sum of the image: u64; 32 bytes
//! trailer  sum of everything before the image: u64 · the same, with `END`
//! ```
//!
//! The trailer begins at a multiple of 8, and the image right before it. All numbers are little-endian. What travels beside payload and image
//! is 48 bytes, and as much as alignment takes.
//!
//! A put may write a frame in any order. A frame is whole when its head and its trailer are consistent in themselves, and
//! the sums are those of what lies between them. Older messages and whatever programs fill idle buffers with are no frame: the
//! mark holds none of the bytes 0, 17 and 42, and a trailer belongs to one head and one payload.
//!
//! A source that stores a frame itself stores the mark last, and another one: [`STORED`]. Such a frame needs no trailer to tell that it is
//! whole. Its sum lies in the head, in place of the check and of the length of the frame, so that a poll of a short message reads one
//! line of the cache that the source has written. Code that lies there already is not stored again: its lines stay in the caches of
//! both sides.
//!
//! The sums detect errors. They are no protection from anybody who writes frames.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slot::Slot;
use crate::sum::{self, STRIPE, Stripes};

/// First bytes of each frame.
const MARK: u32 = u32::from_le_bytes([0xd3, 0x69, 0x66, 0x9e]);
/// First bytes of a frame that its source has stored. It has no trailer, and [`Head::sum`] in place of the check and of its length.
const STORED: u32 = u32::from_le_bytes([0xd3, 0x69, 0x66, 0x9d]);
/// First bytes of a frame that its source is storing. The other half of the word says how many stripes of it there are.
const STORING: u32 = u32::from_le_bytes([0xd3, 0x69, 0x66, 0x9b]);
/// What the second word of a trailer differs in from the first.
const END: u64 = 0x9e66_69d3_c3a5_5a3c;
/// The bits of the first word that are the check.
const CHECK: u64 = 0xffff_ffff << 32;
/// Length of a head.
pub(crate) const HEAD: usize = 32;
/// Length of a trailer.
const TRAILER: usize = 16;
/// Offset of the first stripe of a frame's sum.
pub(crate) const STRIPES_AT: usize = 64;
/// Stripes after which a source that stores a frame says how far it is.
const PART: usize = 1024 / STRIPE;
/// Largest offset of a payload.
const MAX_PAYLOAD_AT: usize = 4096;
/// Largest image.
pub(crate) const MAX_IMAGE: usize = 16 << 20;

/// Where the parts of a frame lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) payload_at: usize,
    pub(crate) payload_len: usize,
    pub(crate) image_len: usize,
}

impl Layout {
    /// `None`: a frame of 4 GiB or more.
    pub(crate) fn new(payload_len: usize, payload_align: usize, image_len: usize) -> Option<Self> {
        Self::at(payload_align.max(HEAD), payload_len, image_len)
    }

    fn at(payload_at: usize, payload_len: usize, image_len: usize) -> Option<Self> {
        let layout = Self {
            payload_at,
            payload_len,
            image_len,
        };
        // Each is less than 2^32 then, so no sum of them overflows.
        let is_small = |len: usize| u32::try_from(len).is_ok();
        let is_valid = payload_at.is_power_of_two()
            && (HEAD..=MAX_PAYLOAD_AT).contains(&payload_at)
            && is_small(payload_len)
            && (1..=MAX_IMAGE).contains(&image_len)
            && is_small(layout.len());
        is_valid.then_some(layout)
    }

    /// Offset of the image.
    pub(crate) fn image_at(&self) -> usize {
        self.trailer_at() - self.image_len
    }

    /// Offset of the trailer.
    pub(crate) fn trailer_at(&self) -> usize {
        (self.payload_at + self.payload_len + self.image_len).next_multiple_of(8)
    }

    /// Length of the frame.
    pub(crate) fn len(&self) -> usize {
        self.trailer_at() + TRAILER
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) layout: Layout,
    /// Index of the entry of the image.
    pub(crate) entry: u16,
    /// [`sum::of`] the image.
    pub(crate) image_sum: u64,
    /// The sum of a frame that was stored; `None`: of one that was put, whose trailer has it.
    stored: Option<u64>,
}

impl Head {
    pub(crate) fn new(layout: Layout, entry: u16, image_sum: u64) -> Self {
        Self {
            layout,
            entry,
            image_sum,
            stored: None,
        }
    }

    /// The words of a head that is put, without the first one.
    #[inline]
    fn words(&self) -> [u64; 3] {
        let Layout {
            payload_at,
            payload_len,
            image_len,
        } = self.layout;
        // A layout has no number of more bits.
        [
            self.layout.len() as u64 | (payload_len as u64) << 32,
            image_len as u64 | (payload_at as u64) << 32 | u64::from(self.entry) << 48,
            self.image_sum,
        ]
    }

    pub(crate) fn bytes(&self) -> [u8; HEAD] {
        let [lengths, code, image_sum] = self.words();
        let first = u64::from(MARK) | sum::mixed([lengths, code, image_sum]) & CHECK;
        let mut bytes = [0; HEAD];
        let words = [first, lengths, code, image_sum];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Reads the head of what lies in `slot`.
    #[inline]
    pub(crate) fn read(slot: Slot) -> Seen {
        match slot.first_word() {
            Some(word) if word as u32 == MARK || word as u32 == STORED => Self::read_marked(slot),
            Some(word) if word as u32 == STORING => Seen::Storing((word >> 32) as usize),
            _ => Seen::Nothing,
        }
    }

    #[inline]
    fn read_marked(slot: Slot) -> Seen {
        let Some(words) = slot.words(0) else {
            return Seen::TooLong(None);
        };
        let [first, lengths, code, image_sum] = words;
        let is_put = first as u32 == MARK;
        if is_put && first != u64::from(MARK) | sum::mixed([lengths, code, image_sum]) & CHECK {
            return Seen::Nothing;
        }
        let layout = Layout::at(
            usize::from((code >> 32) as u16),
            (lengths >> 32) as usize,
            code as u32 as usize,
        );
        let Some(layout) = layout.filter(|layout| !is_put || layout.len() == lengths as u32 as usize) else {
            return Seen::Malformed;
        };
        if layout.len() > slot.len() {
            return Seen::TooLong(Some(layout.len()));
        }
        Seen::Head(Self {
            layout,
            entry: (code >> 48) as u16,
            image_sum,
            stored: (!is_put).then_some(first & CHECK | u64::from(lengths as u32)),
        })
    }

    /// The sum of everything before the image, of a frame with this head and what lies in `slot` now. `known` is the sum of some of its
    /// first stripes.
    #[inline]
    pub(crate) fn sum(&self, slot: Slot, known: Stripes) -> u64 {
        let (len, mut stripes) = (self.layout.image_at() - HEAD, known);
        slot.add_to(&mut stripes, self.stripes());
        // SAFETY: a layout's parts lie in its slot. Another process may write meanwhile: then the sum is of no use, as every one would be.
        unsafe { stripes.finish(sum::mixed(self.words()), slot.address(HEAD), len, None) }
    }

    /// How many stripes are summed.
    #[inline]
    pub(crate) fn stripes(&self) -> usize {
        sum::stripes_of(self.layout.image_at() - HEAD)
    }

    /// Whether a source stores it in parts.
    #[inline]
    pub(crate) fn has_parts(&self) -> bool {
        self.stripes() > PART
    }

    /// The sum that the source has written; `None`: it has not arrived.
    #[inline]
    pub(crate) fn stated(&self, slot: Slot) -> Option<u64> {
        match self.stored {
            Some(sum) => Some(sum),
            None => self.trailer(slot),
        }
    }

    #[inline]
    fn trailer(&self, slot: Slot) -> Option<u64> {
        let [sum, end] = slot.words(self.layout.trailer_at())?;
        (sum ^ end == END).then_some(sum)
    }

    /// Writes the trailer for the payload that lies in `slot` now, unless it is there: UCX may be reading it.
    pub(crate) fn seal(&self, slot: Slot) {
        let sum = self.sum(slot, Stripes::new());
        if self.trailer(slot) == Some(sum) {
            return;
        }
        let at = self.layout.trailer_at();
        slot.write(at, &sum.to_le_bytes());
        slot.write(at + 8, &(sum ^ END).to_le_bytes());
    }

    /// Stores the frame of this head whose payload and image lie in `frame`. The mark is stored last, because the target's poll reads it
    /// meanwhile.
    ///
    /// # Safety
    /// `to` is aligned to a word, and readable and writable for the length of the frame, which does not overlap it.
    #[inline]
    pub(crate) unsafe fn store(&self, frame: Slot, to: *mut u8) {
        let (image_at, words) = (self.layout.image_at(), self.words());
        let (len, mut stripes) = (image_at - HEAD, Stripes::new());
        let (from, all) = (frame.address(0), self.stripes());
        // SAFETY: the caller's promise: the frame's parts lie in it, one after the other, and the words at multiples of a word.
        unsafe {
            let first_word =
                |word: u64| AtomicU64::from_ptr(to.cast()).store(word.to_le(), Ordering::Release);
            loop {
                let at = STRIPES_AT + stripes.count() * STRIPE;
                let left = all - stripes.count();
                let count = PART.min(left);
                stripes.copy(from.wrapping_add(at), count, to.wrapping_add(at), left - count);
                if stripes.count() == all {
                    break;
                }
                // A poll of the target adds this part while the next one is stored.
                first_word(u64::from(STORING) | (stripes.count() as u64) << 32);
            }
            let sum = stripes.finish(sum::mixed(words), from.add(HEAD), len, Some(to.add(HEAD)));
            store_code(frame.address(image_at), to.add(image_at), self.layout.image_len);
            let [lengths, code, image_sum] = words;
            let word = |offset: usize, word: u64| to.add(offset).cast::<u64>().write(word.to_le());
            word(8, lengths & CHECK | u64::from(sum as u32));
            word(16, code);
            word(24, image_sum);
            first_word(u64::from(STORED) | sum & CHECK);
        }
    }

    /// Makes `slot` idle.
    pub(crate) fn take(&self, slot: Slot) {
        if self.stored.is_none() {
            slot.write(self.layout.trailer_at(), &[0; TRAILER]);
        }
        forget(slot);
    }
}

/// Stores the code, unless it lies there.
///
/// # Safety
/// `from` is readable and `to` readable and writable for `len` bytes, which do not overlap.
#[inline]
unsafe fn store_code(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if libc::memcmp(to.cast(), from.cast(), len) != 0 {
            libc::memcpy(to.cast(), from.cast(), len);
        }
    }
}

/// What lies in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No head.
    Nothing,
    /// A frame that is being stored, of which there are so many stripes.
    Storing(usize),
    /// The head of a frame that is longer than the slot; its length, if that is known.
    TooLong(Option<usize>),
    /// The head of no frame, which was written so.
    Malformed,
    /// The head of a frame that fits.
    Head(Head),
}

/// Overwrites the mark of what lies in `slot`.
pub(crate) fn forget(slot: Slot) {
    slot.write(0, &[0; size_of_val(&MARK)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(Layout::new(0, 16, 1).unwrap().len(), 32 + 8 + 16);
        assert_eq!(Layout::new(1, 64, 7).unwrap().len(), 64 + 8 + 16);
        assert_eq!(Layout::new(512, 16, 400).unwrap().len(), 512 + 400 + 48);
        assert_eq!(Layout::new(usize::MAX, 16, 1), None);
        assert_eq!(Layout::new(u32::MAX as usize, 16, 1), None);
        assert_eq!(Layout::new(1, 16, 0), None);
        assert_eq!(Layout::new(1, 16, MAX_IMAGE + 1), None);
        assert_eq!(Layout::new(1, 8192, 1), None);
    }

    fn frame(payload: &[u8], image: &[u8]) -> Vec<u8> {
        let layout = Layout::new(payload.len(), 16, image.len()).unwrap();
        let head = Head::new(layout, 3, sum::of(image));
        let mut bytes = vec![0; layout.len()];
        bytes[..HEAD].copy_from_slice(&head.bytes());
        bytes[layout.payload_at..][..payload.len()].copy_from_slice(payload);
        bytes[layout.image_at()..][..image.len()].copy_from_slice(image);
        // SAFETY: the bytes are this function's.
        head.seal(unsafe { Slot::new(bytes.as_mut_ptr(), bytes.len()) });
        bytes
    }

    /// Whether the bytes are a whole frame, whose sum is right.
    fn is_whole(bytes: &mut [u8]) -> bool {
        // SAFETY: the caller's bytes, which nothing else uses meanwhile.
        let slot = unsafe { Slot::new(bytes.as_mut_ptr(), bytes.len()) };
        match Head::read(slot) {
            Seen::Head(head) => head.trailer(slot) == Some(head.sum(slot, Stripes::new())),
            _ => false,
        }
    }

    #[test]
    fn each_prefix_and_each_suffix_of_a_frame_is_none() {
        let whole = frame(b"what the ifunc is given", &[7; 100]);
        assert!(is_whole(&mut whole.clone()));
        for before in [0, 17, 42, 0xff] {
            for n in 0..whole.len() {
                let mut prefix = vec![before; whole.len()];
                prefix[..n].copy_from_slice(&whole[..n]);
                let mut suffix = vec![before; whole.len()];
                suffix[n + 1..].copy_from_slice(&whole[n + 1..]);
                assert!(!is_whole(&mut prefix) && !is_whole(&mut suffix), "{n}");
            }
        }
    }

    #[test]
    fn what_is_stored_is_the_frame_with_its_sum_in_the_head() {
        for len in [0, 1, 8, 32, 50, 64, 200, 1120, 1121, 5000] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut whole = frame(&payload, &[7; 99]);
            // Memory that is aligned. Once it holds nothing, once the same code, and once other code.
            let mut stored = vec![0_u64; whole.len() / 8];
            for other in [None, Some(7), Some(9)] {
                let to = stored.as_mut_ptr().cast::<u8>();
                // SAFETY: bytes of this test, and memory that is as long.
                unsafe {
                    let (from, to) = (
                        Slot::new(whole.as_mut_ptr(), whole.len()),
                        Slot::new(to, whole.len()),
                    );
                    let Seen::Head(head) = Head::read(from) else {
                        panic!("no head");
                    };
                    let at = head.layout.image_at();
                    if let Some(byte) = other {
                        to.write(at, &[byte; 99]);
                    }
                    head.store(from, to.address(0));
                    let Seen::Head(stored) = Head::read(to) else {
                        panic!("no head");
                    };
                    assert_eq!((stored.layout, stored.entry), (head.layout, head.entry));
                    assert_eq!(stored.stated(to), head.stated(from));
                    assert_eq!(stored.sum(to, Stripes::new()), head.sum(from, Stripes::new()));
                    assert_eq!(to.to_vec(HEAD, at + 99 - HEAD), from.to_vec(HEAD, at + 99 - HEAD));
                    stored.take(to);
                    assert_eq!(Head::read(to), Seen::Nothing);
                }
            }
        }
    }

    #[test]
    fn what_was_taken_is_none_and_may_come_again() {
        let whole = frame(&[1; 50], &[2; 60]);
        let mut bytes = whole.clone();
        // SAFETY: the bytes are this test's.
        let slot = unsafe { Slot::new(bytes.as_mut_ptr(), bytes.len()) };
        let Seen::Head(head) = Head::read(slot) else {
            panic!("no head");
        };
        head.take(slot);
        assert_eq!(Head::read(slot), Seen::Nothing);
        // Its head comes before its trailer.
        slot.write(0, &head.bytes());
        assert_eq!((Head::read(slot), head.trailer(slot)), (Seen::Head(head), None));
        slot.write(head.layout.trailer_at(), &whole[head.layout.trailer_at()..]);
        assert_eq!(bytes, whole);
    }

    #[test]
    fn a_slot_that_is_too_small_is_not_read_beyond_its_end() {
        let mut whole = frame(&[1; 50], &[2; 60]);
        for len in 0..whole.len() {
            // SAFETY: the bytes are this test's.
            let slot = unsafe { Slot::new(whole.as_mut_ptr(), len) };
            let expected = match len {
                0..8 => Seen::Nothing,
                8..HEAD => Seen::TooLong(None),
                _ => Seen::TooLong(Some(whole.len())),
            };
            assert_eq!(Head::read(slot), expected);
        }
    }
}
