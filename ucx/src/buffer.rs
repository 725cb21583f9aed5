//! Buffers of operations that end with a call of the handler.

use std::fmt;

/// Alignment of every buffer.
const ALIGN: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// What UCX has the address of, as the user data of an operation.
pub(crate) struct Node<T> {
    /// The worker's `Inner`, while the operation is under way.
    pub(crate) owner: *const (),
    /// The other operations of the worker that are under way.
    pub(crate) before: *mut Node<T>,
    pub(crate) after: *mut Node<T>,
    lines: Vec<Line>,
    pub(crate) tag: T,
}

/// Bytes that begin at a multiple of 64, and a tag that says what they are used for.
pub struct Buffer<T>(Box<Node<T>>);

/// An operation under way that ends with a call of [`Handler::completed`](crate::Handler::completed): the [`Buffer::id`] that it
/// is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(usize);

// SAFETY: the pointers are used by the worker's callbacks alone, while the operation is under way and no `Buffer` exists.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T> Buffer<T> {
    /// At least `len` bytes, all of them zero: as many as whole lines of 64 have.
    pub fn new(len: usize, tag: T) -> Self {
        Self(Box::new(Node {
            owner: std::ptr::null(),
            before: std::ptr::null_mut(),
            after: std::ptr::null_mut(),
            lines: vec![Line([0; ALIGN]); len.div_ceil(ALIGN)],
            tag,
        }))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lines.len() * ALIGN
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lines.is_empty()
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the lines are initialised, and nothing but bytes.
        unsafe { std::slice::from_raw_parts(self.0.lines.as_ptr().cast(), self.len()) }
    }

    /// The bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.lines.as_mut_ptr().cast(), self.len()) }
    }

    /// What the buffer is used for.
    pub fn tag(&self) -> &T {
        &self.0.tag
    }

    /// What the buffer is used for, to be changed.
    pub fn tag_mut(&mut self) -> &mut T {
        &mut self.0.tag
    }

    /// By which an operation of this buffer is known. No two buffers that exist have the same.
    #[must_use]
    pub fn id(&self) -> OperationId {
        OperationId(std::ptr::from_ref(&*self.0).addr())
    }

    #[inline]
    pub(crate) fn into_raw(self) -> *mut Node<T> {
        Box::into_raw(self.0)
    }

    /// # Safety
    /// From [`into_raw`](Self::into_raw), for the first time since.
    #[inline]
    pub(crate) unsafe fn from_raw(node: *mut Node<T>) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Box::from_raw(node) })
    }
}

impl<T> Node<T> {
    /// Where the bytes begin, and how many there are.
    ///
    /// # Safety
    /// The node is alive, and nothing has a reference to it.
    #[inline]
    pub(crate) unsafe fn memory(this: *mut Self) -> (*mut u8, usize) {
        // SAFETY: the caller's promise. The reference ends here; what it leads to is elsewhere on the heap.
        let lines = unsafe { &mut (*this).lines };
        (lines.as_mut_ptr().cast(), lines.len() * ALIGN)
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("tag", self.tag())
            .finish()
    }
}
