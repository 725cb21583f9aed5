//! Bodies that hold many: invocations in a [`Batch`](crate::frame::Kind::Batch), what became of them in
//! [`Completions`](crate::frame::Kind::Completions).
//!
//! A body is a row of entries. Each begins at a multiple of [`ALIGN`] from the body's begin, with a head of three
//! little-endian numbers; its bytes follow at once, and zeros up to the next multiple of [`ALIGN`]. A body ends behind the
//! zeros of its last entry.
//!
//! | offset | bytes | in a `Batch` | in `Completions` |
//! |---|---|---|---|
//! | 0 | 4 | handle | status code |
//! | 4 | 4 | length of the payload | length of the answer or detail |
//! | 8 | 8 | token, or 0 | token |
//!
//! An entry of a `Batch` means what an `Exec` frame of that handle, token and payload means, and an entry of `Completions` what a
//! `Completion` means: they are dealt with in the order in which they stand. A batch with an entry that is cut off is no
//! batch: what stands before it was run, and the connection is over.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where entries begin, and so the best alignment that a payload in a batch has.
pub const ALIGN: usize = 8;

/// Head of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// Handle, or status code.
    pub code: U32,
    /// How many bytes follow.
    pub len: U32,
    /// Token.
    pub token: U64,
}

impl EntryHead {
    /// Size of the head.
    pub const SIZE: usize = size_of::<Self>();

    /// A head.
    #[must_use]
    pub const fn new(code: u32, len: u32, token: u64) -> Self {
        Self {
            code: U32::new(code),
            len: U32::new(len),
            token: U64::new(token),
        }
    }

    /// Bytes that an entry with a body of `len` bytes takes, head and zeros included; `None` if nothing is that large.
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
    fn entries_lie_behind_each_other() {
        assert_eq!(EntryHead::SIZE, 16);
        assert_eq!(EntryHead::padded_len(0), Some(16));
        assert_eq!(EntryHead::padded_len(1), Some(24));
        assert_eq!(EntryHead::padded_len(8), Some(24));
        assert_eq!(EntryHead::padded_len(usize::MAX - 8), None);
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(EntryHead::new(1, 2, 3).as_bytes(), bytes);
    }
}
