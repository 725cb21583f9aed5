//! The stack that injected code runs on, with a guard below it, and the list of all such stacks for debuggers.
//!
//! A debugger walks the list in memory: the frame information of images tells it how (`debug::symfile`). It may stop the
//! process between any two instructions, so the list is whole at all times. It belongs to the process, not to a target: an
//! image also runs on stacks that are mapped after it was installed.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::page::page_size;

/// Inaccessible bytes below a stack: a multiple of every page size. C ifuncs are compiled with `-fstack-clash-protection`, so that no frame steps over
/// them.
pub(crate) const GUARD: usize = 64 * 1024;

/// A mapped stack.
#[derive(Debug)]
pub(crate) struct Stack {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing of it is bound to a thread.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a stack of `size` bytes (rounded up to pages); pages get memory when they are touched.
    pub(crate) fn new(size: usize) -> rustix::io::Result<Self> {
        let len = size.next_multiple_of(page_size()) + GUARD;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
            )?
        };
        let stack = Self { base, len };
        // SAFETY: the range is the lowest part of the mapping just made; there is no reference into it.
        unsafe { rustix::mm::mprotect(base, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// The highest address, 16-byte aligned: where the stack pointer starts.
    pub(crate) fn top(&self) -> usize {
        self.base as usize + self.len
    }

    /// The lowest usable address.
    pub(crate) fn low(&self) -> usize {
        self.base as usize + GUARD
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing runs on it any more: `Session` borrows the gate that owns it.
        let result = unsafe { rustix::mm::munmap(self.base, self.len) };
        debug_assert!(result.is_ok());
    }
}

/// An entry of the list. Debuggers know its layout.
#[repr(C)]
#[derive(Debug)]
struct Listed {
    next: AtomicPtr<Listed>,
    /// Lowest usable address.
    low: usize,
    /// Canonical frame address of `X_main`.
    frame: usize,
}

/// Offset of a stack's lowest address in its entry; the next entry is at 0.
pub(crate) const LOW: u8 = std::mem::offset_of!(Listed, low) as u8;
/// Offset of the canonical frame address of `X_main`.
pub(crate) const FRAME: u8 = std::mem::offset_of!(Listed, frame) as u8;
const _: () = assert!(std::mem::offset_of!(Listed, next) == 0);

static FIRST: AtomicPtr<Listed> = AtomicPtr::new(ptr::null_mut());
/// Held to change the list.
static CHANGE: Mutex<()> = Mutex::new(());

pub(crate) fn lock() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a debugger finds the address of the first entry; null: there is none.
pub(crate) fn first() -> usize {
    (&raw const FIRST).expose_provenance()
}

/// Keeps a stack in the list.
#[derive(Debug)]
pub(crate) struct Listing(*mut Listed);

// SAFETY: the entry is a heap allocation of this value's own; it is touched under the lock only.
unsafe impl Send for Listing {}

impl Listing {
    pub(crate) fn new(stack: Range<usize>) -> Self {
        let _list = lock();
        let entry = Box::into_raw(Box::new(Listed {
            next: AtomicPtr::new(FIRST.load(Ordering::Relaxed)),
            low: stack.start,
            frame: stack.end,
        }));
        FIRST.store(entry, Ordering::Release);
        Self(entry)
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let _list = lock();
        let mut link = &FIRST;
        loop {
            let entry = link.load(Ordering::Relaxed);
            // SAFETY: every listed entry is alive as long as the lock is held, and this one is listed.
            let next = unsafe { &(*entry).next };
            if ptr::eq(entry, self.0) {
                link.store(next.load(Ordering::Relaxed), Ordering::Release);
                break;
            }
            link = next;
        }
        // SAFETY: made by `new`, and no longer listed.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The listed stacks that begin at one of these addresses.
    fn listed(among: Range<usize>) -> Vec<Range<usize>> {
        let _list = lock();
        let mut found = Vec::new();
        let mut entry = FIRST.load(Ordering::Relaxed);
        // SAFETY: every listed entry is alive as long as the lock is held.
        while let Some(this) = unsafe { entry.as_ref() } {
            found.extend(among.contains(&this.low).then_some(this.low..this.frame));
            entry = this.next.load(Ordering::Relaxed);
        }
        found
    }

    #[test]
    fn the_list_holds_the_stacks_that_are_mapped() {
        let mut all: Vec<_> = [1..5, 6..7, 8..9].map(Listing::new).into_iter().collect();
        assert_eq!(listed(1..9), [8..9, 6..7, 1..5]);
        drop(all.remove(1));
        assert_eq!(listed(1..9), [8..9, 1..5]);
        drop(all.remove(1));
        assert_eq!(listed(1..9), vec![Range { start: 1, end: 5 }]);
        drop(all);
        assert!(listed(1..9).is_empty());
    }
}
