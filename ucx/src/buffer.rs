//! Buffers that belong to an operation while it is under way.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::shared::Handle;

/// Alignment of every [`Buffer`].
const ALIGN: usize = 64;

/// What an operation that was [started](crate::Operations::start) reads or writes.
#[derive(Debug)]
pub enum Bytes {
    /// On the heap, where moving the vector leaves them.
    Owned(Vec<u8>),
    /// Only to be read.
    Static(&'static [u8]),
}

impl Bytes {
    /// The bytes as a vector; a copy if they are static.
    #[must_use]
    #[inline]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes.to_vec(),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl From<&'static [u8]> for Bytes {
    #[inline]
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl<const N: usize> From<&'static [u8; N]> for Bytes {
    #[inline]
    fn from(bytes: &'static [u8; N]) -> Self {
        Self::Static(bytes)
    }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// What UCX has the address of, as the user data of an operation.
pub(crate) struct Node<T> {
    /// The worker's `Inner`, while the operation is under way.
    pub(crate) owner: Handle<()>,
    /// Its index among the worker's operations under way, once it is one of them.
    pub(crate) index: usize,
    /// `post` points this at a flag on its stack while it calls UCX. `unlink` sets the flag if UCX ends the operation before `post` has linked
    /// the node. Otherwise null.
    pub(crate) beginning: Handle<Cell<bool>>,
    lines: Vec<Line>,
    pub(crate) tag: T,
}

/// Bytes that begin at a multiple of 64, and a tag that states their use.
pub struct Buffer<T>(Box<Node<T>>);

/// An operation under way that ends with a call of [`Handler::completed`](crate::Handler::completed): the [`Buffer::id`] of its
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(usize);

impl<T> Buffer<T> {
    /// At least `len` zero bytes: `len` rounded up to a multiple of 64.
    pub fn new(len: usize, tag: T) -> Self {
        Self(Box::new(Node {
            owner: Handle(std::ptr::null_mut()),
            index: 0,
            beginning: Handle(std::ptr::null_mut()),
            lines: vec![Line([0; ALIGN]); len.div_ceil(ALIGN)],
            tag,
        }))
    }

    /// What the buffer is used for.
    pub fn tag(&self) -> &T {
        &self.0.tag
    }

    /// As [`tag`](Self::tag), to be changed.
    pub fn tag_mut(&mut self) -> &mut T {
        &mut self.0.tag
    }

    /// The id of an operation with this buffer. No two buffers that exist have the same.
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

impl<T> Deref for Buffer<T> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the lines are initialised, and nothing but bytes.
        unsafe { std::slice::from_raw_parts(self.0.lines.as_ptr().cast(), self.0.lines.len() * ALIGN) }
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.0.lines.len() * ALIGN;
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.lines.as_mut_ptr().cast(), len) }
    }
}

impl<T> Node<T> {
    /// Address and length of the bytes.
    ///
    /// # Safety
    /// The node is alive, and nothing has a reference to it.
    #[inline]
    pub(crate) unsafe fn memory(this: *mut Self) -> (*mut u8, usize) {
        // SAFETY: the caller's promise. The reference ends here; the lines are elsewhere on the heap.
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
