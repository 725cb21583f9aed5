//! `String`, `Vec` and `Box` through the target's allocator.

use core::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    fn __ifunc_alloc(size: usize, align: usize) -> *mut u8;
    fn __ifunc_dealloc(ptr: *mut u8, size: usize, align: usize);
    fn __ifunc_realloc(ptr: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8;
}

struct TargetAllocator;

// SAFETY: every target provides the three functions with the contract of `GlobalAlloc` (`ifunc_abi::symbols`).
unsafe impl GlobalAlloc for TargetAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: takes any size and any alignment of a `Layout`.
        unsafe { __ifunc_alloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back what `alloc` or `realloc` gave, under the same layout.
        unsafe { __ifunc_dealloc(ptr, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`.
        unsafe { __ifunc_realloc(ptr, layout.size(), layout.align(), new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: TargetAllocator = TargetAllocator;
