//! Hints to the processor: where cache lines will be needed, before they are. They change neither memory nor registers nor flags,
//! and do not fault; a processor that does not know one executes it as a no-op.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Fetches the cache line of `ptr` for writing, in the background. Any address will do: a hint does not
/// fault.
///
/// The producer's stores to a slot wait for its line to come from the consumer's cache, and only as many
/// lines are under way as their stores fit into the store buffer. Asked for a few slots ahead, the lines are
/// there: 8 bytes 18 → 9 ns.
#[inline]
pub(super) fn for_writing<T>(ptr: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = ptr;
}

/// Fetches the cache line of `ptr`, in the background.
#[inline]
pub(super) fn for_reading<T>(ptr: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = ptr;
}

/// Moves the cache line of `ptr` to where another core finds it sooner than in this one's cache.
#[inline]
pub(super) fn for_others<T>(ptr: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("cldemote [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = ptr;
}

/// Gives a hint for each line of `len` bytes from `ptr` on, which begins a line.
#[inline]
pub(super) fn each_line(ptr: *const u8, len: usize, hint: impl Fn(*const u8)) {
    for at in (0..len).step_by(LINE) {
        hint(ptr.wrapping_add(at));
    }
}

/// Ticks of a clock that costs next to nothing to look at: by them one tells a stream from what comes now and then, no more. Where
/// there is none it stands still.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}
