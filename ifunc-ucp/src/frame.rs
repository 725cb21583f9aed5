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
//! The sums detect errors. They are no protection from anybody who writes frames.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slot::Slot;
use crate::sum::{self, Sum};

/// First bytes of each frame.
const MARK: u32 = u32::from_le_bytes([0xd3, 0x69, 0x66, 0x9e]);
/// What the second word of a trailer differs in from the first.
const END: u64 = 0x9e66_69d3_c3a5_5a3c;
/// The bits of the first word that are the check.
const CHECK: u64 = 0xffff_ffff << 32;
/// Length of a head.
pub(crate) const HEAD: usize = 32;
/// Length of a trailer.
const TRAILER: usize = 16;
/// From this length on `memcpy` copies by `rep movsb`, whose stores do not wait until the lines of the target's cache are here. That
/// saves more than the second reading of a payload costs.
const LONG: usize = 2048;
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
    words: [u64; HEAD / 8],
}

impl Head {
    pub(crate) fn new(layout: Layout, entry: u16, image_sum: u64) -> Self {
        // A layout has no number of more bits.
        let lengths = layout.len() as u64 | (layout.payload_len as u64) << 32;
        let code = layout.image_len as u64 | (layout.payload_at as u64) << 32 | u64::from(entry) << 48;
        let check = sum::mixed([lengths, code, image_sum]) & CHECK;
        Self {
            layout,
            entry,
            image_sum,
            words: [u64::from(MARK) | check, lengths, code, image_sum],
        }
    }

    pub(crate) fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Reads the head of what lies in `slot`.
    #[inline]
    pub(crate) fn read(slot: Slot) -> Seen {
        match slot.first_word() {
            Some(word) if word as u32 == MARK => Self::read_marked(slot),
            _ => Seen::Nothing,
        }
    }

    #[inline]
    fn read_marked(slot: Slot) -> Seen {
        let Some(words) = slot.words(0) else {
            return Seen::TooLong(None);
        };
        let [first, lengths, code, image_sum] = words;
        if first != u64::from(MARK) | sum::mixed([lengths, code, image_sum]) & CHECK {
            return Seen::Nothing;
        }
        let frame_len = lengths as u32 as usize;
        let layout = Layout::at(
            usize::from((code >> 32) as u16),
            (lengths >> 32) as usize,
            code as u32 as usize,
        );
        let Some(layout) = layout.filter(|layout| layout.len() == frame_len) else {
            return Seen::Malformed;
        };
        if frame_len > slot.len() {
            return Seen::TooLong(Some(frame_len));
        }
        Seen::Head(Self {
            layout,
            entry: (code >> 48) as u16,
            image_sum,
            words,
        })
    }

    /// The sum of a frame with this head and what lies in `slot` now.
    #[inline]
    pub(crate) fn sum(&self, slot: Slot) -> u64 {
        let [_, lengths, code, image_sum] = self.words;
        let mut sum = Sum::of_mixed(sum::mixed([lengths, code, image_sum]));
        slot.add_to(&mut sum, HEAD, self.layout.image_at() - HEAD);
        sum.finish()
    }

    /// The sum in the trailer; `None`: it has not arrived.
    #[inline]
    pub(crate) fn trailer(&self, slot: Slot) -> Option<u64> {
        let [sum, end] = slot.words(self.layout.trailer_at())?;
        (sum ^ end == END).then_some(sum)
    }

    /// Writes the trailer for the payload that lies in `slot` now.
    #[inline]
    pub(crate) fn seal(&self, slot: Slot) {
        self.seal_with(slot, self.sum(slot));
    }

    /// Writes the trailer of this sum, unless it is there: UCX may be reading it.
    #[inline]
    fn seal_with(&self, slot: Slot, sum: u64) {
        if self.trailer(slot) == Some(sum) {
            return;
        }
        let at = self.layout.trailer_at();
        slot.write(at, &sum.to_le_bytes());
        slot.write(at + 8, &(sum ^ END).to_le_bytes());
    }

    /// Stores the frame of this head whose payload and image lie in `frame`, which is sealed, too: it is a message as it lies there. The
    /// mark is stored last, because the target's poll reads it meanwhile.
    ///
    /// # Safety
    /// `to` is aligned to a word, and writable for the length of the frame, which does not overlap it.
    #[inline]
    pub(crate) unsafe fn store(&self, frame: Slot, to: *mut u8) {
        let Layout { image_len, .. } = self.layout;
        let (image_at, trailer_at) = (self.layout.image_at(), self.layout.trailer_at());
        let [first, lengths, code, image_sum] = self.words;
        let mut sum = Sum::of_mixed(sum::mixed([lengths, code, image_sum]));
        // SAFETY: the caller's promise; the frame's parts lie in it, one after the other, and words at multiples of a word.
        unsafe {
            if trailer_at - HEAD < LONG {
                sum.add_and_copy(frame.address(HEAD), image_at - HEAD, Some(to.add(HEAD)));
                libc::memcpy(to.add(image_at).cast(), frame.address(image_at).cast(), image_len);
            } else {
                sum.add_at(frame.address(HEAD), image_at - HEAD);
                libc::memcpy(to.add(HEAD).cast(), frame.address(HEAD).cast(), trailer_at - HEAD);
            }
            let sum = sum.finish();
            self.seal_with(frame, sum);
            let word = |offset: usize, word: u64| to.add(offset).cast::<u64>().write(word.to_le());
            word(trailer_at, sum);
            word(trailer_at + 8, sum ^ END);
            word(8, lengths);
            word(16, code);
            word(24, image_sum);
            AtomicU64::from_ptr(to.cast()).store(first.to_le(), Ordering::Release);
        }
    }

    /// Makes `slot` idle.
    pub(crate) fn take(&self, slot: Slot) {
        slot.write(self.layout.trailer_at(), &[0; TRAILER]);
        forget(slot);
    }
}

/// What lies in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No head.
    Nothing,
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
            Seen::Head(head) => head.trailer(slot) == Some(head.sum(slot)),
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
    fn what_is_stored_is_what_is_sealed() {
        for len in [0, 1, 8, 50, 64, 200, 5000] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut whole = frame(&payload, &[7; 99]);
            let mut stored = vec![0_u64; whole.len() / 8];
            // SAFETY: bytes of this test, and memory that is as long, and aligned.
            unsafe {
                let slot = Slot::new(whole.as_mut_ptr(), whole.len());
                let Seen::Head(head) = Head::read(slot) else {
                    panic!("no head");
                };
                head.store(slot, stored.as_mut_ptr().cast());
            }
            let stored: Vec<u8> = stored.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(stored, whole, "{len}");
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
