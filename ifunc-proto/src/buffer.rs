//! A growable buffer whose start has the alignment of a frame's body.

use ifunc_abi::frame::BODY_ALIGN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; BODY_ALIGN]);

/// Bytes that start at a multiple of [`BODY_ALIGN`].
#[derive(Clone, Debug, Default)]
pub struct AlignedBuffer {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBuffer {
    /// Sets the length to `len` bytes. Added bytes are zero, or what the buffer held there before.
    #[inline]
    pub fn resize(&mut self, len: usize) {
        let lines = len.div_ceil(BODY_ALIGN);
        if lines != self.lines.len() {
            self.lines.resize(lines, Line([0; BODY_ALIGN]));
        }
        self.len = len;
    }

    /// Like [`resize`](Self::resize). `None`: the allocator has no memory, and the buffer is unchanged.
    #[inline]
    pub fn try_resize(&mut self, len: usize) -> Option<()> {
        let lines = len.div_ceil(BODY_ALIGN);
        if let Some(more) = lines.checked_sub(self.lines.len() + 1) {
            self.lines.try_reserve_exact(more + 1).ok()?;
        }
        self.resize(len);
        Some(())
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.lines.as_bytes()[..self.len]
    }

    /// The bytes, writable.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.lines.as_mut_bytes()[..self.len]
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns memory beyond `keep` bytes to the allocator and truncates to that length.
    pub fn shrink(&mut self, keep: usize) {
        self.resize(self.len.min(keep));
        self.lines.shrink_to(keep.div_ceil(BODY_ALIGN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_its_bytes() {
        let mut buffer = AlignedBuffer::default();
        assert_eq!(buffer.as_slice(), b"");
        buffer.resize(3);
        buffer.as_mut_slice().copy_from_slice(b"abc");
        buffer.resize(1000);
        assert!(buffer.as_slice().as_ptr().addr().is_multiple_of(64));
        assert_eq!(&buffer.as_slice()[..4], b"abc\0");
        buffer.shrink(2);
        assert_eq!(buffer.as_slice(), b"ab");
    }

    #[test]
    fn memory_is_whole_lines_and_what_is_more_than_wanted_is_given_back() {
        let mut buffer = AlignedBuffer::default();
        assert!(buffer.is_empty());
        for (len, lines) in [(1, 1), (64, 1), (65, 2), (640, 10), (641, 11), (0, 0)] {
            buffer.resize(len);
            assert_eq!((buffer.len(), buffer.lines.len()), (len, lines));
            assert_eq!(buffer.is_empty(), len == 0);
            assert_eq!((buffer.as_slice().len(), buffer.as_mut_slice().len()), (len, len));
        }
        for len in [0, 1, 64, 65, 6400, 6401, 128] {
            assert_eq!(buffer.try_resize(len), Some(()));
            assert_eq!((buffer.len(), buffer.lines.len()), (len, len.div_ceil(64)));
        }
        // No more than is needed is allocated, and nothing changes if there is no memory.
        let mut exact = AlignedBuffer::default();
        for len in [64, 640, 6400] {
            exact.try_resize(len).unwrap();
            assert_eq!(exact.lines.capacity(), len / 64);
        }
        assert_eq!(exact.try_resize(usize::MAX - 64), None);
        assert_eq!((exact.len(), exact.lines.len()), (6400, 100));
        exact.shrink(10_000);
        assert_eq!((exact.len(), exact.lines.capacity()), (6400, 100));
        exact.shrink(65);
        assert_eq!((exact.len(), exact.lines.capacity()), (65, 2));
    }
}
