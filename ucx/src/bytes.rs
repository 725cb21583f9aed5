//! Buffers that an operation may own.

use std::sync::Arc;

/// Bytes at an address that does not change while the value is moved.
///
/// # Safety
/// As long as the value is neither dropped nor used by a mutable reference, `as_ptr` returns the same pointer, it is readable
/// for `len` bytes, and these bytes do not change.
pub unsafe trait StableBytes: Send + 'static {
    /// Where the bytes begin.
    fn as_ptr(&self) -> *const u8;
    /// How many there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that may be written as well.
///
/// # Safety
/// As for [`StableBytes`]; the bytes are writable, by the value's owner alone.
pub unsafe trait StableBytesMut: StableBytes {
    /// Where the bytes begin.
    fn as_mut_ptr(&mut self) -> *mut u8;
}

// SAFETY: on the heap, where moving the vector leaves them.
unsafe impl StableBytes for Vec<u8> {
    fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }
    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

// SAFETY: as above, and owned.
unsafe impl StableBytesMut for Vec<u8> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_slice().as_mut_ptr()
    }
}

// SAFETY: on the heap, where moving the box leaves them.
unsafe impl StableBytes for Box<[u8]> {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: as above, and owned.
unsafe impl StableBytesMut for Box<[u8]> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        (**self).as_mut_ptr()
    }
}

// SAFETY: on the heap, where moving the box leaves them.
unsafe impl<const N: usize> StableBytes for Box<[u8; N]> {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        N
    }
}

// SAFETY: as above, and owned.
unsafe impl<const N: usize> StableBytesMut for Box<[u8; N]> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        (**self).as_mut_ptr()
    }
}

// SAFETY: on the heap, and immutable as long as they are shared, with the operation among others.
unsafe impl StableBytes for Arc<[u8]> {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: neither moved nor changed nor dropped.
unsafe impl StableBytes for &'static [u8] {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: neither moved nor changed nor dropped.
unsafe impl<const N: usize> StableBytes for &'static [u8; N] {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        N
    }
}

// SAFETY: there are none.
unsafe impl StableBytes for () {
    fn as_ptr(&self) -> *const u8 {
        std::ptr::dangling()
    }
    fn len(&self) -> usize {
        0
    }
}
