//! Hints to the processor.

/// Fetches the cache line of `ptr` for writing, in the background. Any address will do: a hint does not
/// fault.
///
/// The producer's stores to a slot wait for its line to come from the consumer's cache, and only as many
/// lines are under way as their stores fit into the store buffer. Asked for a few slots ahead, the lines are
/// there: 8 bytes 18 → 9 ns.
#[inline]
pub(super) fn for_writing<T>(ptr: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `prefetchw` changes neither memory nor registers nor flags, and does not fault; processors
    // without it execute it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = ptr;
}
