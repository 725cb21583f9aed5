//! The control of floating-point arithmetic.

use std::arch::asm;

use super::shim::SAVED_CONTROL;

/// What controls floating-point arithmetic: rounding, denormals, which exceptions trap. Injected code may change it
/// (`fesetround`), and functions of the host were compiled for what it is there.
///
/// FPSR, which only records exceptions, is a register of its own, and is left as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatControl {
    fpcr: u32,
}

impl FloatControl {
    /// As it is now.
    pub(crate) fn current() -> Self {
        let fpcr: u64;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
        // The upper half is reserved, and 0.
        Self { fpcr: fpcr as u32 }
    }

    /// As the shim found it.
    ///
    /// # Safety
    /// `saved_sp` must be what the shim left in the gate of an invocation that runs and may set the control of floats.
    pub(crate) unsafe fn saved(saved_sp: usize) -> Self {
        let word = std::ptr::with_exposed_provenance::<u64>(saved_sp + SAVED_CONTROL);
        // SAFETY: the caller's promise: the shim has stored it there.
        let fpcr = unsafe { word.read() } as u32;
        Self { fpcr }
    }

    /// As a word that [`remembered`](Self::remembered) makes one of again: FPCR, and a bit that is always set.
    pub(crate) fn remember(self) -> u64 {
        1 << 32 | u64::from(self.fpcr)
    }

    /// Of a word of [`remember`](Self::remember).
    pub(crate) fn remembered(word: u64) -> Self {
        Self { fpcr: word as u32 }
    }

    /// Whether arithmetic is the same.
    pub(crate) fn is_as(self, other: Self) -> bool {
        self.fpcr == other.fpcr
    }

    /// Sets it.
    ///
    /// # Safety
    /// The caller must be in the call gate: compiled code of the host expects the host's control, which is restored before
    /// any of it computes.
    pub(crate) unsafe fn set(self) {
        // SAFETY: it was read from the register, so no reserved bit is set; the rest is the caller's promise.
        unsafe {
            asm!("msr fpcr, {}", in(reg) u64::from(self.fpcr), options(nomem, nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_control_of_floats_is_remembered() {
        for fpcr in [0, 1 << 22, u32::MAX] {
            let word = FloatControl { fpcr }.remember();
            assert!(![0, u64::MAX].contains(&word), "words of the gate's own");
            assert_eq!(FloatControl::remembered(word).fpcr, fpcr);
        }
        assert!(FloatControl::current().is_as(FloatControl { fpcr: 0 }));
        assert!(!FloatControl { fpcr: 1 << 23 }.is_as(FloatControl { fpcr: 0 }));
    }
}
