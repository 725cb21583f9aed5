//! The stack that injected code runs on: its own, with a guard below it.

use std::ffi::c_void;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Inaccessible bytes below a stack. C ifuncs are compiled with `-fstack-clash-protection`, so that no frame steps over
/// them.
const GUARD: usize = 64 * 1024;

/// A mapped stack.
#[derive(Debug)]
pub(super) struct Stack {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing of it is bound to a thread.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a stack of `size` bytes (rounded up to pages); pages get memory when they are touched.
    pub(super) fn new(size: usize) -> rustix::io::Result<Self> {
        let len = size.next_multiple_of(4096) + GUARD;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of anybody.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
            )?
        };
        let stack = Self { base, len };
        // SAFETY: the range is the lowest part of the mapping just made; nobody has a reference into it.
        unsafe { rustix::mm::mprotect(base, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// The highest address, 16-byte aligned: where the stack pointer starts.
    pub(super) fn top(&self) -> usize {
        self.base as usize + self.len
    }

    /// The lowest usable address.
    pub(super) fn low(&self) -> usize {
        self.base as usize + GUARD
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing runs on it any more: `Entry::run` borrows the stack.
        let result = unsafe { rustix::mm::munmap(self.base, self.len) };
        debug_assert!(result.is_ok());
    }
}
