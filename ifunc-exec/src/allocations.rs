//! What images allocate: `__ifunc_alloc` and its two companions, over the allocator of the process.
//!
//! There are two sets of the three functions. The *plain* ones allocate and free, and nothing else: memory that an invocation holds when
//! it ends early stays allocated, because the image's statics or the target's data may point to it. An image that
//! [keeps no memory](keeps_no_memory) is bound to the *noted* ones: the gate knows what its invocation holds, and gives it back when the
//! invocation ends early. An image that does not allocate is bound to neither.
//!
//! A pointer may pass from one set to the other: both take memory from one allocator, under the same layout.

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::ptr;

use ifunc_abi::image::{Image, ImageFlags};

use crate::gate::{gate_in_host, on_host_side};

/// Whether no pointer that an image's code writes outlives its invocation, as far as the image says: it has no memory of its own that
/// it can write, is not declared to give addresses away, and states the type of each entry, which holds no pointers. What it imports
/// is for the host to [check](crate::Symbol::only_borrows).
pub(crate) fn keeps_no_memory(image: &Image<'_>) -> bool {
    image.rw_range().is_none()
        && !image.flags().contains(ImageFlags::PINNED)
        // Rust states the type of every payload, and C of none. A target argument without one is then not used.
        && image.entries().all(|entry| entry.payload != 0)
}

/// The three functions, in the order allocate, free, resize.
pub(crate) const PLAIN: [fn() -> *const (); 3] = [
    || alloc_plain as *const (),
    || dealloc_plain as *const (),
    || realloc_plain as *const (),
];
/// The same, noted.
const NOTED: [fn() -> *const (); 3] = [
    || alloc_noted as *const (),
    || dealloc_noted as *const (),
    || realloc_noted as *const (),
];

/// Replaces the plain functions in the GOT of an image that keeps no memory.
pub(crate) fn note_all(got: &mut [usize]) {
    for (plain, noted) in PLAIN.iter().zip(NOTED) {
        let plain = plain().addr();
        for address in got.iter_mut().filter(|address| **address == plain) {
            *address = noted().expose_provenance();
        }
    }
}

/// What the invocation of a gate has allocated and not freed.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// Counts the passage of the gate in which it was allocated.
    passage: u64,
    held: Held,
}

type Held = HashMap<usize, Layout, BuildHasherDefault<AddressHasher>>;

/// Largest capacity that is kept for the next invocation.
const MOST_KEPT: usize = 1024;

impl Allocations {
    /// What the invocation of this passage holds. What an earlier one kept stays allocated: it returned.
    fn current(&mut self, passage: u64) -> &mut Held {
        if self.passage != passage {
            self.passage = passage;
            if self.held.capacity() > MOST_KEPT {
                self.held = Held::default();
            } else {
                self.held.clear();
            }
        }
        &mut self.held
    }

    /// Frees what the invocation held that ended last, if it noted it; `passage` counts its end.
    ///
    /// # Safety
    /// The invocation ended early, and nothing uses its memory any more.
    pub(crate) unsafe fn free_of_last(&mut self, passage: u64) {
        for (address, layout) in mem::take(self.current(passage.wrapping_sub(1))) {
            // SAFETY: allocated under this layout and not freed: it would not be here. The caller promises the rest.
            unsafe { alloc::dealloc(ptr::with_exposed_provenance_mut(address), layout) };
        }
    }
}

/// Calls `with` on the host's side, with what the invocation holds; `None`: no invocation called.
fn noting<R>(with: impl FnOnce(Option<&mut Held>) -> R) -> R {
    on_host_side(|| {
        let gate = gate_in_host().and_then(|gate| Some((gate, gate.passages.within()?)));
        match gate {
            Some((gate, passage)) => with(Some(gate.allocations.borrow_mut().current(passage))),
            None => with(None),
        }
    })
}

/// Whether there is room to note one more.
fn has_room(held: Option<&mut Held>) -> bool {
    held.is_none_or(|held| held.try_reserve(1).is_ok())
}

/// The layout of memory of an ifunc, which may have no bytes.
fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), align).ok()
}

pub(crate) extern "C" fn alloc_plain(size: usize, align: usize) -> *mut u8 {
    let Some(layout) = layout(size, align) else {
        return ptr::null_mut();
    };
    // SAFETY: the size is not zero.
    on_host_side(|| unsafe { alloc::alloc(layout) })
}

/// # Safety
/// `ptr` came from one of these functions, with the same size and alignment, and is not used afterwards.
pub(crate) unsafe extern "C" fn dealloc_plain(ptr: *mut u8, size: usize, align: usize) {
    let Some(layout) = layout(size, align) else {
        return;
    };
    // SAFETY: the caller's promise.
    on_host_side(|| unsafe { alloc::dealloc(ptr, layout) });
}

/// # Safety
/// As for [`dealloc_plain`], unless the result is null.
pub(crate) unsafe extern "C" fn realloc_plain(
    ptr: *mut u8,
    size: usize,
    align: usize,
    new_size: usize,
) -> *mut u8 {
    let (Some(layout), Some(new)) = (layout(size, align), layout(new_size, align)) else {
        return ptr::null_mut();
    };
    // SAFETY: the caller's promise; the new size fits a layout.
    on_host_side(|| unsafe { alloc::realloc(ptr, layout, new.size()) })
}

extern "C" fn alloc_noted(size: usize, align: usize) -> *mut u8 {
    let Some(layout) = layout(size, align) else {
        return ptr::null_mut();
    };
    noting(|held| allocate(held, layout))
}

/// Allocates memory of this layout, which has a size, and notes it.
fn allocate(mut held: Option<&mut Held>, layout: Layout) -> *mut u8 {
    if !has_room(held.as_deref_mut()) {
        return ptr::null_mut();
    }
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc::alloc(layout) };
    if let Some(held) = held
        && !memory.is_null()
    {
        held.insert(memory.expose_provenance(), layout);
    }
    memory
}

/// # Safety
/// As for [`dealloc_plain`].
unsafe extern "C" fn dealloc_noted(ptr: *mut u8, size: usize, align: usize) {
    let Some(layout) = layout(size, align) else {
        return;
    };
    noting(|held| {
        if let Some(held) = held {
            held.remove(&ptr.addr());
        }
        // SAFETY: the caller's promise.
        unsafe { alloc::dealloc(ptr, layout) };
    });
}

/// # Safety
/// As for [`realloc_plain`].
unsafe extern "C" fn realloc_noted(ptr: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8 {
    let (Some(layout), Some(new)) = (layout(size, align), layout(new_size, align)) else {
        return ptr::null_mut();
    };
    noting(|mut held| {
        if !has_room(held.as_deref_mut()) {
            return ptr::null_mut();
        }
        let before = ptr.addr();
        // SAFETY: the caller's promise; the new size fits a layout.
        let memory = unsafe { alloc::realloc(ptr, layout, new.size()) };
        if let Some(held) = held
            && !memory.is_null()
        {
            held.remove(&before);
            held.insert(memory.expose_provenance(), new);
        }
        memory
    })
}

/// Addresses of memory differ in their middle bits.
#[derive(Clone, Copy, Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, word: usize) {
        // The high half of the product depends on all bits, and a table looks at both ends.
        let product = u128::from(self.0 ^ word as u64) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_null() {
        for (alloc, dealloc, realloc) in [
            (
                alloc_plain as extern "C" fn(_, _) -> _,
                dealloc_plain as unsafe extern "C" fn(_, _, _),
                realloc_plain as unsafe extern "C" fn(_, _, _, _) -> _,
            ),
            (alloc_noted, dealloc_noted, realloc_noted),
        ] {
            assert!(alloc(usize::MAX, 8).is_null());
            assert!(alloc(8, 3).is_null());
            let ptr: *mut u8 = alloc(8, 64);
            assert!(!ptr.is_null() && ptr.addr().is_multiple_of(64));
            // SAFETY: `ptr` came from `alloc` with these values.
            unsafe {
                let no: *mut u8 = realloc(ptr, 8, 64, usize::MAX);
                assert!(no.is_null());
                dealloc(ptr, 8, 64);
            }
        }
    }

    #[test]
    fn what_an_invocation_forgot_that_returned_is_not_freed() {
        let layout = Layout::new::<u64>();
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc::alloc(layout) };
        let mut all = Allocations::default();
        all.current(1).insert(memory.expose_provenance(), layout);
        assert_eq!(all.current(1).len(), 1);
        // The invocation of passage 3 ended at 4, and holds nothing.
        // SAFETY: there is nothing of it.
        unsafe { all.free_of_last(4) };
        assert!(all.held.is_empty());
        // SAFETY: not freed before; Miri and the sanitizer say so.
        unsafe { alloc::dealloc(memory, layout) };
    }

    #[test]
    fn what_is_allocated_is_noted() {
        let (layout, mut held) = (Layout::new::<u64>(), Held::default());
        let memory = [allocate(Some(&mut held), layout), allocate(None, layout)];
        let expected = Held::from_iter([(memory[0].addr(), layout)]);
        assert_eq!(held, expected);
        for memory in memory {
            assert!(!memory.is_null());
            // SAFETY: allocated with this layout, and not freed.
            unsafe { alloc::dealloc(memory, layout) };
        }
        // A size that no layout may have would be undefined; one that no machine has is refused.
        let absurd = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
        assert!(allocate(Some(&mut held), absurd).is_null());
        assert_eq!(held, expected);
    }

    #[test]
    fn a_large_table_is_not_kept_for_the_next_invocation() {
        let mut all = Allocations::default();
        let mut capacity_after = |passage, count| {
            let held = all.current(passage);
            held.extend((0..count).map(|address| (address, Layout::new::<u8>())));
            let before = held.capacity();
            let held = all.current(passage + 2);
            assert!(held.is_empty());
            (before, held.capacity())
        };
        let (before, after) = capacity_after(1, MOST_KEPT / 2);
        assert!(before >= MOST_KEPT / 2 && after == before, "{before} {after}");
        let (before, after) = capacity_after(5, MOST_KEPT + 1);
        assert!(before > MOST_KEPT && after == 0, "{before} {after}");
    }

    #[test]
    fn addresses_are_spread_over_a_table() {
        let hash = |words: &[usize]| {
            let mut hasher = AddressHasher::default();
            words.iter().for_each(|word| hasher.write_usize(*word));
            hasher.finish()
        };
        // By hand: the halves of the product of 2^64 / phi and the word are exclusive-ored.
        assert_eq!(hash(&[1]), 0x9e37_79b9_7f4a_7c15);
        assert_eq!(hash(&[1 << 16]), 0x79b9_7f4a_7c15_0000 ^ 0x9e37);
        assert_eq!(hash(&[3]), 0xdaa6_6d2c_7ddf_743f ^ 1);
        // The hash of what came before goes into the product.
        assert_eq!(hash(&[1, 0x9e37_79b9_7f4a_7c15 ^ (1 << 16)]), hash(&[1 << 16]));
        let mut bytes = AddressHasher::default();
        bytes.write(&[7, 9]);
        assert_eq!(bytes.finish(), hash(&[7, 9]));
        // A table takes the position from the low bits, and a tag from the highest seven.
        for shift in [4, 6, 12] {
            let hashes: Vec<u64> = (1..=1024_usize)
                .map(|n| hash(&[(0x7f00 << 32) + (n << shift)]))
                .collect();
            let distinct = |part: fn(&u64) -> u64| {
                let parts: std::collections::HashSet<u64> = hashes.iter().map(part).collect();
                parts.len()
            };
            assert!(distinct(|hash| hash % 1024) > 512, "{shift}");
            assert!(distinct(|hash| hash >> 57) > 96, "{shift}");
        }
    }
}
