//! The frame: a message with its code, complete in itself.
//!
//! ```text
//! ┌──────┬─────────┬─────┬───────┬─────────┐
//! │ head │ payload │ pad │ image │ trailer │
//! └──────┴─────────┴─────┴───────┴─────────┘
//! head     0 mark · 4 check of the bytes from 8 on · 8 length of the frame · 12 of the payload · 16 of the image · 20 offset of the
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

use crate::slot::Slot;
use crate::sum::{self, Sum};

/// First bytes of each frame.
const MARK: [u8; 4] = [0xd3, 0x69, 0x66, 0x9e];
/// What the second word of a trailer differs in from the first.
const END: u64 = 0x9e66_69d3_c3a5_5a3c;
/// Length of a head.
pub(crate) const HEAD: usize = 32;
/// Length of a trailer.
const TRAILER: usize = 16;
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
    bytes: [u8; HEAD],
}

impl Head {
    pub(crate) fn new(layout: Layout, entry: u16, image_sum: u64) -> Self {
        let mut bytes = [0; HEAD];
        bytes[8..12].copy_from_slice(&(layout.len() as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(layout.payload_len as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&(layout.image_len as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&(layout.payload_at as u16).to_le_bytes());
        bytes[22..24].copy_from_slice(&entry.to_le_bytes());
        bytes[24..].copy_from_slice(&image_sum.to_le_bytes());
        let check = check(&bytes);
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        Self {
            layout,
            entry,
            image_sum,
            bytes,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8; HEAD] {
        &self.bytes
    }

    /// Reads the head of what lies in `slot`.
    pub(crate) fn read(slot: Slot) -> Seen {
        if slot.first_bytes() != Some(MARK) {
            return Seen::Nothing;
        }
        let Some(bytes) = slot.copy::<HEAD>(0) else {
            return Seen::TooLong(None);
        };
        if bytes[4..8] != check(&bytes).to_le_bytes() {
            return Seen::Nothing;
        }
        let word = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |word| u32::from_le_bytes(*word))
        };
        let half = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |half| u16::from_le_bytes(*half))
        };
        let frame_len = word(8) as usize;
        let layout = Layout::at(half(20).into(), word(12) as usize, word(16) as usize);
        let Some(layout) = layout.filter(|layout| layout.len() == frame_len) else {
            return Seen::Malformed;
        };
        if frame_len > slot.len() {
            return Seen::TooLong(Some(frame_len));
        }
        Seen::Head(Self {
            layout,
            entry: half(22),
            image_sum: bytes[24..]
                .first_chunk()
                .map_or(0, |sum| u64::from_le_bytes(*sum)),
            bytes,
        })
    }

    /// The sum of a frame with this head and what lies in `slot` now.
    pub(crate) fn sum(&self, slot: Slot) -> u64 {
        let mut sum = Sum::new();
        sum.add(&self.bytes);
        slot.add_to(&mut sum, HEAD, self.layout.image_at() - HEAD);
        sum.finish()
    }

    /// The sum in the trailer; `None`: it has not arrived.
    pub(crate) fn trailer(&self, slot: Slot) -> Option<u64> {
        let trailer = slot.copy::<TRAILER>(self.layout.trailer_at())?;
        let (words, _) = trailer.as_chunks::<8>();
        let [sum, end] = [words[0], words[1]].map(u64::from_le_bytes);
        (sum ^ end == END).then_some(sum)
    }

    /// Writes the trailer for the payload that lies in `slot` now, unless it is there: UCX may be reading it.
    pub(crate) fn seal(&self, slot: Slot) {
        let sum = self.sum(slot);
        if self.trailer(slot) == Some(sum) {
            return;
        }
        let at = self.layout.trailer_at();
        slot.write(at, &sum.to_le_bytes());
        slot.write(at + 8, &(sum ^ END).to_le_bytes());
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
    slot.write(0, &[0; MARK.len()]);
}

/// The check of a head.
fn check(bytes: &[u8; HEAD]) -> u32 {
    (sum::of(&bytes[8..]) >> 32) as u32
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
        bytes[..HEAD].copy_from_slice(head.bytes());
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
        slot.write(0, head.bytes());
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
