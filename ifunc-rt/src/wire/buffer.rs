//! Bytes at an address that a payload may have.

use ifunc_abi::frame::BODY_ALIGN;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; BODY_ALIGN]);

/// A growable buffer whose start is aligned to [`BODY_ALIGN`].
#[derive(Clone, Debug, Default)]
pub(crate) struct AlignedBuffer {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBuffer {
    /// Makes the buffer `len` bytes long; new bytes are zero or what was there before.
    pub(crate) fn resize(&mut self, len: usize) {
        self.lines.resize(len.div_ceil(BODY_ALIGN), Line([0; BODY_ALIGN]));
        self.len = len;
    }

    /// As [`resize`](Self::resize); `None` if there is no memory for it.
    pub(crate) fn try_resize(&mut self, len: usize) -> Option<()> {
        let lines = len.div_ceil(BODY_ALIGN);
        self.lines
            .try_reserve(lines.saturating_sub(self.lines.len()))
            .ok()?;
        self.resize(len);
        Some(())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `lines` holds at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives memory back when the buffer was once much larger than it is now used.
    pub(crate) fn shrink(&mut self, keep: usize) {
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
}
