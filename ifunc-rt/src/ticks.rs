//! A clock for times of less than a microsecond.

/// Ticks of a clock that costs next to nothing to read: precise enough to recognise a stream. Where there is no such clock, 0.
#[inline]
pub(crate) fn ticks() -> u64 {
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
    use super::*;

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
