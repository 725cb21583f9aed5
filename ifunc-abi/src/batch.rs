//! Bodies with many entries: a [`Batch`](crate::frame::Kind::Batch) holds invocations, a
//! [`Completions`](crate::frame::Kind::Completions) holds their outcomes.
//!
//! A body is a sequence of *runs*. Entries that follow each other and are alike (one handle, one length,
//! consecutive tokens or none) share a run, and so one head: an entry of a long run costs its own bytes. A run
//! begins at a multiple of [`ALIGN`] from the beginning of the body. It is a [`RunHead`] of little-endian
//! numbers, `count` entries of `stride` bytes each, and zeros up to the next multiple of [`ALIGN`]. The body
//! ends after the zeros of its last run.
//!
//! | offset | bytes | in a `Batch` | in `Completions` |
//! |---|---|---|---|
//! | 0 | 4 | handle | status code |
//! | 4 | 4 | length of each payload | length of each answer or detail |
//! | 8 | 8 | token of the first entry, or 0 | token of the first entry |
//! | 16 | 4 | number of entries | number of entries |
//! | 20 | 4 | distance between two payloads | distance between two answers or details |
//!
//! The distance between two entries is their length, or up to [`ALIGN`]` - 1` bytes more, which are zeros: the
//! sender places payloads at multiples of their alignment, if that is at most [`ALIGN`]. With a token, entry
//! `i` has the token of the first entry plus `i`.
//!
//! An entry of a `Batch` means the same as an `Exec` frame with that handle, token and payload. An entry of
//! `Completions` means the same as a `Completion`. The receiver processes entries in order. A run whose head
//! is malformed, or that is cut off, is processed in no part: the target runs the entries before it and closes
//! the connection.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Alignment of a run in bytes, and so the largest alignment that a payload in a batch can rely on.
pub const ALIGN: usize = 8;

/// Most entries of a run. It bounds what a few bytes can ask for: entries of no bytes cost nothing.
pub const MAX_RUN: u32 = 1 << 16;

/// Head of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RunHead {
    /// Handle in a `Batch`, status code in `Completions`.
    pub code: U32,
    /// Length of each entry in bytes.
    pub len: U32,
    /// Token of the first entry; 0 in a `Batch`: the source wants no completions.
    pub token: U64,
    /// Number of entries, 1 to [`MAX_RUN`].
    pub count: U32,
    /// Distance between two entries in bytes.
    pub stride: U32,
}

impl RunHead {
    /// Size of the head.
    pub const SIZE: usize = size_of::<Self>();

    /// Builds the head of `count` entries.
    #[must_use]
    pub const fn new(code: u32, token: u64, len: u32, stride: u32, count: u32) -> Self {
        Self {
            code: U32::new(code),
            len: U32::new(len),
            token: U64::new(token),
            count: U32::new(count),
            stride: U32::new(stride),
        }
    }

    /// Size in bytes of the run with this head: head, entries and zeros. `None`: the head is malformed.
    #[must_use]
    pub const fn run_len(&self) -> Option<usize> {
        let (len, stride, count) = (self.len.get(), self.stride.get(), self.count.get());
        if count == 0 || count > MAX_RUN || stride < len || stride - len >= ALIGN as u32 {
            return None;
        }
        let token = self.token.get();
        if token != 0 && token.checked_add(count as u64 - 1).is_none() {
            return None;
        }
        // At most 48 bits, and so less than any address has.
        const { assert!(usize::BITS == 64) };
        let entries = stride as usize * count as usize;
        Some((entries + (Self::SIZE + ALIGN - 1)) / ALIGN * ALIGN)
    }

    /// Size in bytes of a run of one entry of `len` bytes: head, entry and zeros. `None` if it overflows.
    #[must_use]
    pub const fn single_len(len: usize) -> Option<usize> {
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
    fn runs_are_padded_to_their_alignment() {
        assert_eq!(RunHead::SIZE, 24);
        let size = |len, stride, count| RunHead::new(0, 0, len, stride, count).run_len();
        assert_eq!(size(0, 0, 1), Some(24));
        assert_eq!(size(1, 1, 1), Some(32));
        assert_eq!(size(1, 1, 9), Some(40));
        assert_eq!(size(5, 8, 3), Some(48));
        assert_eq!(size(8, 8, 100), Some(824));
        for len in [0, 1, 7, 8, 9] {
            assert_eq!(RunHead::single_len(len), size(len as u32, len as u32, 1));
        }
        assert_eq!(RunHead::single_len(usize::MAX - 8), None);
        let bytes = [
            1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0,
        ];
        assert_eq!(RunHead::new(1, 3, 2, 4, 5).as_bytes(), bytes);
    }

    #[test]
    fn malformed_heads_have_no_size() {
        let size = |token, len, stride, count| RunHead::new(0, token, len, stride, count).run_len();
        assert_eq!(size(0, 8, 8, 0), None, "no entry");
        assert_eq!(size(0, 0, 0, MAX_RUN + 1), None, "too many entries");
        assert_eq!(size(0, 8, 7, 1), None, "entries overlap");
        assert_eq!(size(0, 8, 16, 1), None, "more space than an alignment needs");
        assert_eq!(size(u64::MAX, 8, 8, 2), None, "tokens overflow");
        assert!(size(u64::MAX, 8, 8, 1).is_some());
        let longest = u32::MAX as usize * MAX_RUN as usize;
        assert_eq!(size(0, u32::MAX, u32::MAX, MAX_RUN), Some(longest + 24));
    }

    #[test]
    fn the_limits_of_a_run_are_exact() {
        let size = |token, len, stride, count| RunHead::new(0, token, len, stride, count).run_len();
        assert_eq!(size(0, 0, 0, MAX_RUN), Some(24));
        assert_eq!(size(0, 1, 8, 1), Some(32));
        assert_eq!(size(0, 1, 9, 1), None, "more space than an alignment needs");
        assert_eq!(size(u64::MAX - 1, 0, 0, 2), Some(24));
        assert_eq!(size(u64::MAX - 1, 0, 0, 3), None, "tokens overflow");
    }
}
