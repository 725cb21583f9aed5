//! Hints to the processor: which cache lines will be needed. They change neither memory nor registers nor flags, and do not fault; a
//! processor that does not know one executes it as a no-op.

use crate::sum::STRIPE;

/// Fetches a line, in the background.
#[inline(always)]
pub(crate) fn for_reading(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Fetches a line and the right to write it, in the background.
#[inline(always)]
pub(crate) fn for_writing(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Gives a hint for each line of `count` stripes. Any address will do.
#[inline(always)]
pub(crate) fn lines(at: *const u8, count: usize, hint: impl Fn(*const u8)) {
    for n in 0..count {
        hint(at.wrapping_add(n * STRIPE));
    }
}
