//! Reading and changing ranges of bytes.

use ifunc::prelude::*;

use crate::Bytes;

/// A range of bytes.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub len: u64,
}

/// Answers these ranges, one after the other: `call(..)?.wait_bytes()?`.
#[ifunc(idempotent)]
pub fn gather_bytes(ranges: &[Range], bytes: &mut dyn Bytes, ctx: &mut Context) {
    let bytes = bytes.bytes();
    let total = ranges.iter().fold(0_usize, |total, range| {
        total.saturating_add(place(range.offset, range.len, bytes.len()).len())
    });
    ctx.answer_of_len(total, |mut answer| {
        for range in ranges {
            let range = &bytes[place(range.offset, range.len, bytes.len())];
            let (space, rest) = core::mem::take(&mut answer).split_at_mut(range.len());
            space.copy_from_slice(range);
            answer = rest;
        }
    });
}

/// Bytes to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Where.
    pub offset: u64,
    /// What.
    pub bytes: &'a [u8],
}

/// The payload of [`scatter_bytes`](fn@scatter_bytes): sources pass a `[Patch]`. Each patch travels as its offset, its length and
/// its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Patches<'a>(&'a [u8]);

/// Bytes before those of a patch.
const HEAD: usize = 16;

impl<'a> Patches<'a> {
    /// The patches, in their order.
    pub fn iter(self) -> impl Iterator<Item = Patch<'a>> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (patch, after) = Patch::split(rest)?;
            rest = after;
            Some(patch)
        })
    }
}

impl<'a> Patch<'a> {
    /// The first patch of these bytes, and what follows it.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (offset, bytes) = bytes.split_first_chunk()?;
        let (len, bytes) = bytes.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (bytes, after) = bytes.split_at_checked(len)?;
        let offset = u64::from_le_bytes(*offset);
        Some((Self { offset, bytes }, after))
    }
}

impl<'a> Payload<'a> for Patches<'a> {
    type Source = [Patch<'a>];
    const TEXT: Text = Text::new().str("ifunc-ops patches/1");

    fn bound(patches: &[Patch<'a>]) -> usize {
        patches.iter().map(|patch| HEAD + patch.bytes.len()).sum()
    }

    fn encode(patches: &[Patch<'a>], out: &mut [u8]) -> Result<usize, EncodeError> {
        let len = Self::bound(patches);
        let mut out = out.get_mut(..len).ok_or(EncodeError::TooLarge)?;
        for patch in patches {
            let (offset, rest) = out.split_first_chunk_mut().ok_or(EncodeError::TooLarge)?;
            let (length, rest) = rest.split_first_chunk_mut().ok_or(EncodeError::TooLarge)?;
            let (bytes, rest) = rest
                .split_at_mut_checked(patch.bytes.len())
                .ok_or(EncodeError::TooLarge)?;
            *offset = patch.offset.to_le_bytes();
            *length = (patch.bytes.len() as u64).to_le_bytes();
            bytes.copy_from_slice(patch.bytes);
            out = rest;
        }
        Ok(len)
    }

    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = payload;
        while !rest.is_empty() {
            (_, rest) = Patch::split(rest).ok_or(DecodeError::Length)?;
        }
        Ok(Self(payload))
    }
}

/// Stores bytes at their offsets, in their order, and answers the number of patches.
#[ifunc(codec = custom, idempotent)]
pub fn scatter_bytes(patches: Patches<'_>, bytes: &mut dyn Bytes) -> u64 {
    let bytes = bytes.bytes();
    for patch in patches.iter() {
        place(patch.offset, patch.bytes.len() as u64, bytes.len());
    }
    let mut count = 0;
    for patch in patches.iter() {
        let place = place(patch.offset, patch.bytes.len() as u64, bytes.len());
        bytes[place].copy_from_slice(patch.bytes);
        count += 1;
    }
    count
}

/// The place of a range; fails the invocation beyond the end.
fn place(offset: u64, len: u64, all: usize) -> core::ops::Range<usize> {
    let end = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
    match end {
        Some(end) if end <= all => offset as usize..end,
        _ => panic!("{len} bytes at {offset} are beyond the end of {all} bytes"),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    struct Memory(Vec<u8>);

    impl Bytes for Memory {
        fn bytes(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    fn encoded(patches: &[Patch<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; Patches::bound(patches)];
        assert_eq!(Patches::encode(patches, &mut bytes), Ok(bytes.len()));
        bytes
    }

    fn patch(offset: u64, bytes: &[u8]) -> Patch<'_> {
        Patch { offset, bytes }
    }

    #[test]
    fn patches_are_stored_all_or_none() {
        let mut memory = Memory(b"0123456789".to_vec());
        let payload = encoded(&[patch(8, b"ab"), patch(0, b""), patch(1, b"xyz")]);
        assert_eq!(scatter_bytes(Patches::decode(&payload).unwrap(), &mut memory), 3);
        assert_eq!(memory.0, b"0xyz4567ab");
        let payload = encoded(&[patch(0, b"!"), patch(9, b"!!")]);
        let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scatter_bytes(Patches::decode(&payload).unwrap(), &mut memory)
        }));
        assert!(beyond.is_err());
        assert_eq!(memory.0, b"0xyz4567ab");
    }

    #[test]
    fn a_payload_is_patches_from_end_to_end() {
        let whole = encoded(&[patch(u64::MAX, b"ab"), patch(3, b"c")]);
        for len in 0..whole.len() {
            assert_eq!(
                Patches::decode(&whole[..len]).is_ok(),
                len == 0 || len == 18,
                "{len}"
            );
        }
        let mut long = whole;
        long[8..16].fill(0xff);
        assert_eq!(Patches::decode(&long).err(), Some(DecodeError::Length));
    }

    #[test]
    #[should_panic = "2 bytes at 18446744073709551615 are beyond the end of 4 bytes"]
    fn offsets_do_not_overflow() {
        place(u64::MAX, 2, 4);
    }
}
