//! The body of a received frame, as a pointer; and what every transport asks of a body.

use std::marker::PhantomData;

use ifunc_abi::frame::BODY_ALIGN;
use ifunc_proto::link;

/// Bytes that the peer may still be able to write. Every transport's [`Inbound`](link::Inbound) returns this type, so that
/// an image can be called with the address of its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    ptr: *const u8,
    len: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Body<'a> {
    /// # Safety
    /// `ptr` must stay readable for `len` bytes during `'a`. Another process may write there meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *const u8, len: usize) -> Self {
        Self {
            ptr,
            len,
            memory: PhantomData,
        }
    }
}

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: borrowed for `'a`.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }
}

impl link::Body for Body<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slice(&self, at: usize, len: usize) -> Option<Self> {
        if self.len.checked_sub(at)? < len {
            return None;
        }
        // SAFETY: `at` is at most `self.len`, and the slice lies within what stays readable by the constructor's contract.
        Some(unsafe { Self::new(self.ptr.add(at), len) })
    }

    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(
            out.len(),
            self.len,
            "the caller gives as many bytes as the body has"
        );
        // SAFETY: readable for `len` by the constructor's contract; `out` is as long and, because it is `&mut`, elsewhere.
        // A concurrent writer can only make the copied bytes arbitrary.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr(), self.len) };
    }

    #[inline(always)]
    fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        // SAFETY: readable for `len` by the constructor's contract; `out` has room for `len` more bytes, which are
        // initialised by the copy. The ranges do not overlap because `out` owns its memory. A concurrent writer can only
        // make the copied bytes arbitrary.
        unsafe {
            std::ptr::copy_nonoverlapping(self.ptr, out.as_mut_ptr().add(out.len()), self.len);
            out.set_len(out.len() + self.len);
        }
    }
}

/// Asserts that a frame can have a body of `len` bytes at this alignment, of at most `most`: that of a transport.
#[inline(always)]
pub(crate) fn assert_fits(len: usize, align: usize, most: usize) {
    assert!(
        len <= most && align <= BODY_ALIGN,
        "a body larger than the transport takes"
    );
}
