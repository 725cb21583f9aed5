//! Bodies with many entries: a [`Batch`](crate::frame::Kind::Batch) holds invocations, a
//! [`Completions`](crate::frame::Kind::Completions) holds their outcomes.
//!
//! Each entry begins at a multiple of [`ALIGN`] from the beginning of the body. It is an [`EntryHead`] of
//! three little-endian numbers, the entry's bytes, and zeros up to the next multiple of [`ALIGN`]. The body
//! ends after the zeros of its last entry.
//!
//! zeros of its last entry.
//!
//! | offset | bytes | in a `Batch` | in `Completions` |
//! |---|---|---|---|
//! | 0 | 4 | handle | status code |
//! | 4 | 4 | length of the payload | length of the answer or detail |
//! | 8 | 8 | token, or 0 | token |
//!
//! An entry of a `Batch` means the same as an `Exec` frame with that handle, token and payload. An entry of
//! `Completions` means the same as a `Completion`. The receiver processes entries in order. A batch whose
//! last entry is truncated is malformed: the target runs the entries before it and closes the connection.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Alignment of an entry in bytes, and so the largest alignment that a payload in a batch can rely on.
pub const ALIGN: usize = 8;

/// Head of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// Handle in a `Batch`, status code in `Completions`.
    pub code: U32,
    /// Length of the entry's bytes, without the zeros.
    pub len: U32,
    /// Token; 0 in a `Batch`: the source wants no completion.
    pub token: U64,
}

impl EntryHead {
    /// Size of the head.
    pub const SIZE: usize = size_of::<Self>();

    /// Builds a head.
    #[must_use]
    pub const fn new(code: u32, len: u32, token: u64) -> Self {
        Self {
            code: U32::new(code),
            len: U32::new(len),
            token: U64::new(token),
        }
    }

    /// Size in bytes of an entry whose body has `len` bytes: head, body and zeros. `None` if it overflows.
    #[must_use]
    pub const fn padded_len(len: usize) -> Option<usize> {
        match len.checked_add(Self::SIZE + ALIGN - 1) {
            Some(end) => Some(end / ALIGN * ALIGN),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_to_their_alignment() {
        assert_eq!(EntryHead::SIZE, 16);
        assert_eq!(EntryHead::padded_len(0), Some(16));
        assert_eq!(EntryHead::padded_len(1), Some(24));
        assert_eq!(EntryHead::padded_len(8), Some(24));
        assert_eq!(EntryHead::padded_len(usize::MAX - 8), None);
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(EntryHead::new(1, 2, 3).as_bytes(), bytes);
    }
}
