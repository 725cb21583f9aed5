//! Copying by non-temporal stores, which bypass the caches.
//!
//! An ordinary store to a line that another core holds waits until that core gives the line up. A non-temporal store fills a buffer of
//! the processor; when the buffer has the whole line, it goes to memory, and other cores' copies of the line become invalid.

/// Whether this processor has stores that bypass the caches whatever the state of the line. Those of AArch64 are hints.
pub(super) const AVAILABLE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Copies whole cache lines. What is stored afterwards becomes visible after the copy.
///
/// # Safety
/// `to` must be valid for writes of the length of `from`, and not overlap it.
///
/// # Panics
/// `from` or `to` does not begin a line, or `from` ends within one.
pub(super) unsafe fn copy_lines(from: &[u8], to: *mut u8) {
    let is_whole = |at: usize| at.is_multiple_of(LINE);
    assert!(is_whole(from.len()) && is_whole(from.as_ptr().addr()) && is_whole(to.addr()));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};

        let (from, to, parts) = (
            from.as_ptr().cast::<__m128i>(),
            to.cast::<__m128i>(),
            from.len() / 16,
        );
        for at in (0..parts).step_by(4) {
            // SAFETY: every x86-64 processor has the instructions. Both sides have `parts` parts of 16 bytes, aligned as they must be:
            // `from` is a slice, and the caller promises it of `to`.
            unsafe {
                let line = [0, 1, 2, 3].map(|part| _mm_load_si128(from.add(at + part)));
                for (part, value) in line.into_iter().enumerate() {
                    _mm_stream_si128(to.add(at + part), value);
                }
            }
        }
        // SAFETY: every x86-64 processor has the instruction. Without it, later stores could become visible before these.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller promises it.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ifunc_proto::buffer::AlignedBuffer;

    use super::{LINE, copy_lines};

    #[test]
    fn whole_lines_are_copied_and_nothing_else() {
        let (mut from, mut to) = (AlignedBuffer::default(), AlignedBuffer::default());
        from.resize(4 * LINE);
        to.resize(6 * LINE);
        for (at, byte) in from.as_mut_slice().iter_mut().enumerate() {
            *byte = at as u8 | 1;
        }
        for lines in 0..=4 {
            to.as_mut_slice().fill(0);
            let from = &from.as_slice()[..lines * LINE];
            // SAFETY: `to` has two lines more than `from` has at most.
            unsafe { copy_lines(from, to.as_mut_slice()[LINE..].as_mut_ptr()) };
            let expected = [&[0; LINE], from, &[0; LINE].repeat(5 - lines)].concat();
            assert_eq!(to.as_slice(), expected);
        }
    }
}
