//! Hints to the processor: where cache lines will be needed, before they are. They change neither memory nor registers nor flags,
//! and do not fault; a processor that does not know one executes it as a no-op.

/// Bytes of a cache line.
const LINE: usize = 64;

/// A function that gives a hint about the cache line of a pointer. Any address will do: a hint does not fault.
macro_rules! hint {
    ($name:ident, $x86_64:literal, $aarch64:literal, $(#[$doc:meta])*) => {
        $(#[$doc])*
        #[inline]
        pub(super) fn $name<T>(ptr: *const T) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a hint.
            unsafe {
                std::arch::asm!($x86_64, in(reg) ptr, options(nostack, preserves_flags, readonly));
            }
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            // SAFETY: a hint.
            unsafe {
                std::arch::asm!($aarch64, in(reg) ptr, options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
            let _ = ptr;
        }
    };
}

hint!(
    for_writing,
    "prefetchw [{}]",
    "prfm pstl1keep, [{}]",
    /// Fetches the cache line for writing, in the background.
    ///
    /// The producer's stores to a slot wait for its line to come from the consumer's cache, and only as many
    /// lines are under way as their stores fit into the store buffer. Asked for a few slots ahead, the lines are
    /// there: 8 bytes 18 → 9 ns.
);
hint!(
    for_reading,
    "prefetcht0 [{}]",
    "prfm pldl1keep, [{}]",
    /// Fetches the cache line, in the background.
);
hint!(
    for_others,
    "cldemote [{}]",
    "/* {} */",
    /// Moves the cache line to where another core finds it sooner than in this one's cache. AArch64 has no such hint.
);

/// Gives a hint for each line of `len` bytes from `ptr` on, which begins a line.
#[inline]
pub(super) fn each_line(ptr: *const u8, len: usize, hint: impl Fn(*const u8)) {
    for at in (0..len).step_by(LINE) {
        hint(ptr.wrapping_add(at));
    }
}

/// Fetches the beginning of a body of `len` bytes that was found: the processor fetches what follows by itself.
#[inline]
pub(super) fn body(ptr: *const u8, len: usize) {
    const FIRST: usize = 1 << 10;
    each_line(ptr, len.min(FIRST), for_reading);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_line_has_one_hint() {
        let begin = std::ptr::without_provenance::<u8>(1 << 20);
        for (len, lines) in [(0, 0), (1, 1), (64, 1), (65, 2), (1000, 16)] {
            let hinted = RefCell::new(Vec::new());
            each_line(begin, len, |at| hinted.borrow_mut().push(at.addr()));
            let expected: Vec<usize> = (0..lines).map(|line| (1 << 20) + line * LINE).collect();
            assert_eq!(hinted.into_inner(), expected);
        }
    }
}
