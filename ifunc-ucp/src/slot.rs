//! Memory into which other processes put.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::frame::STRIPES_AT;
use crate::sum::{STRIPE, Stripes};

/// A range of memory that anybody may write to at any time. Each access is bounded by its length, and each value is read once, by a
/// copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    at: *mut u8,
    len: usize,
}

impl Slot {
    /// # Safety
    /// The memory is readable and writable as long as the value is used. No reference to it is used meanwhile.
    pub(crate) unsafe fn new(at: *mut u8, len: usize) -> Self {
        Self { at, len }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The address of a byte in it.
    pub(crate) fn address(self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: within the memory, or its end.
        unsafe { self.at.add(offset) }
    }

    /// The address of `len` bytes from `offset` on.
    fn range(self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: within the memory.
        (end <= self.len).then(|| unsafe { self.at.add(offset) })
    }

    /// The first word, little-endian, if the memory holds one. What was written before it is seen after it.
    #[inline]
    pub(crate) fn first_word(self) -> Option<u64> {
        let [word] = self.words(0)?;
        fence(Ordering::Acquire);
        Some(word)
    }

    /// A copy of `N` little-endian words. Each is read once.
    #[inline]
    pub(crate) fn words<const N: usize>(self, offset: usize) -> Option<[u64; N]> {
        let from = self.range(offset, 8 * N)?.cast::<u64>();
        let words = if from.is_aligned() {
            // SAFETY: within the memory, and aligned.
            std::array::from_fn(|n| unsafe { AtomicU64::from_ptr(from.add(n)) }.load(Ordering::Relaxed))
        } else {
            // SAFETY: within the memory; any bytes are a value.
            let bytes = unsafe { from.cast::<[[u8; 8]; N]>().read_volatile() };
            bytes.map(u64::from_ne_bytes)
        };
        Some(words.map(u64::from_le))
    }

    /// A copy of `len` bytes. `None`: they are not in the memory, or there is no memory for them.
    pub(crate) fn to_vec(self, offset: usize, len: usize) -> Option<Vec<u8>> {
        let from = self.range(offset, len)?;
        let mut bytes = Vec::<u8>::new();
        bytes.try_reserve_exact(len).ok()?;
        // SAFETY: both ranges are of `len` bytes; the vector's are its own.
        unsafe {
            libc::memcpy(bytes.as_mut_ptr().cast(), from.cast(), len);
            bytes.set_len(len);
        }
        Some(bytes)
    }

    /// Whether these bytes lie there.
    #[inline]
    pub(crate) fn holds(self, offset: usize, bytes: &[u8]) -> bool {
        self.range(offset, bytes.len()).is_some_and(|at| {
            // SAFETY: both are of this length.
            unsafe { libc::memcmp(at.cast::<c_void>(), bytes.as_ptr().cast(), bytes.len()) == 0 }
        })
    }

    /// Adds the stripes of a frame that lies at the beginning, up to this number of them, as far as they are in the memory.
    pub(crate) fn add_to(self, stripes: &mut Stripes, up_to: usize) {
        let all = self.len.saturating_sub(STRIPES_AT) / STRIPE;
        let count = up_to.min(all).saturating_sub(stripes.count());
        let at = self.at.wrapping_add(STRIPES_AT + stripes.count() * STRIPE);
        // SAFETY: within the memory. Another process may write meanwhile: then the sum is of no use, as every one would be.
        unsafe { stripes.add(at, count) };
    }

    /// Writes bytes, if they are in the memory.
    pub(crate) fn write(self, offset: usize, bytes: &[u8]) {
        if let Some(at) = self.range(offset, bytes.len()) {
            // SAFETY: within the memory.
            unsafe { libc::memcpy(at.cast(), bytes.as_ptr().cast(), bytes.len()) };
        }
    }
}
