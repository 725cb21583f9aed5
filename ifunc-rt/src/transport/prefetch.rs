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

/// Ticks of a clock that costs next to nothing to read: precise enough to recognise a stream. Where there is no such clock, 0.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let (ticks, per_second): (u64, u64);
        // SAFETY: reads registers that Linux lets programs read. The counter may be read ahead of what precedes, by less than a tick.
        unsafe {
            std::arch::asm!(
                "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0",
                out(reg) ticks, out(reg) per_second,
                options(nomem, nostack, preserves_flags)
            );
        }
        ticks.wrapping_mul(ticks_per_tick(per_second))
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    0
}

/// How many ticks of a clock as fast as a processor, of some two gigahertz, one tick of a slower clock takes: the times that streams are
/// recognised by are in those.
#[cfg(any(target_arch = "aarch64", test))]
fn ticks_per_tick(per_second: u64) -> u64 {
    const PROCESSOR: u64 = 2_000_000_000;
    PROCESSOR.checked_div(per_second).map_or(1, |times| times.max(1))
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

    #[test]
    fn a_slow_clock_counts_the_ticks_of_a_processor() {
        // The counters of a Graviton, of a server of Armv8.6, of an emulator, and one that states nothing.
        let times = [121_875_000, 1_000_000_000, 62_500_000, 0].map(ticks_per_tick);
        assert_eq!(times, [16, 2, 32, 1]);
    }

    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    #[test]
    fn the_clock_goes_on() {
        let began = ticks();
        while ticks() == began {}
    }
}
