//! The stacks of this process that injected code runs on, as a list in memory that a debugger walks: the frame information of
//! images tells it how (`debug::symfile`).
//!
//! A debugger may stop the process between any two instructions, so the list is whole at all times. It is of the process, not of
//! a target: an image that is installed runs on stacks that are mapped later, too.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A stack, with its places fixed for debuggers.
#[repr(C)]
#[derive(Debug)]
struct Listed {
    next: AtomicPtr<Listed>,
    /// Lowest usable address.
    low: usize,
    /// Canonical frame address of `X_main`.
    frame: usize,
}

/// Offsets of what a debugger reads; the next is at 0.
pub(crate) const LOW: u8 = 8;
pub(crate) const FRAME: u8 = 16;

const _: () = {
    assert!(std::mem::offset_of!(Listed, next) == 0);
    assert!(std::mem::offset_of!(Listed, low) == LOW as usize);
    assert!(std::mem::offset_of!(Listed, frame) == FRAME as usize);
};

static FIRST: AtomicPtr<Listed> = AtomicPtr::new(ptr::null_mut());
/// Held by whoever changes the list.
static CHANGE: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a debugger finds the address of the first stack; null: there is none.
pub(crate) fn first() -> usize {
    (&raw const FIRST).expose_provenance()
}

/// Keeps a stack in the list.
#[derive(Debug)]
pub(super) struct Listing(*mut Listed);

// SAFETY: the entry is a heap allocation of this value's own; it is touched under the lock only.
unsafe impl Send for Listing {}

impl Listing {
    pub(super) fn new(stack: Range<usize>) -> Self {
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
        let mut place = &FIRST;
        loop {
            let entry = place.load(Ordering::Relaxed);
            // SAFETY: what is in the list is alive as long as the lock is held, and this entry is in it.
            let next = unsafe { &(*entry).next };
            if ptr::eq(entry, self.0) {
                place.store(next.load(Ordering::Relaxed), Ordering::Release);
                break;
            }
            place = next;
        }
        // SAFETY: made by `new`, and in the list no more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those in the list that begin at one of these addresses.
    fn listed(among: Range<usize>) -> Vec<Range<usize>> {
        let _list = lock();
        let mut found = Vec::new();
        let mut entry = FIRST.load(Ordering::Relaxed);
        // SAFETY: what is in the list is alive as long as the lock is held.
        while let Some(this) = unsafe { entry.as_ref() } {
            found.extend(among.contains(&this.low).then_some(this.low..this.frame));
            entry = this.next.load(Ordering::Relaxed);
        }
        found
    }

    #[test]
    fn the_list_holds_what_is_there() {
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
