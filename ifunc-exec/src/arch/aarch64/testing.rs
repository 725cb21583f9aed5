//! What tests of the gate need of AArch64: how floats are computed, faults, and machine code.

pub(crate) mod code;

use std::arch::asm;
use std::ffi::c_int;

/// FPCR.
pub(crate) type Rounding = u64;
/// What a new thread has: to the nearest.
pub(crate) const AT_FIRST: Rounding = 0;
/// Towards zero, and small numbers are flushed to it.
pub(crate) const TOWARDS_ZERO: Rounding = 0b11 << 22 | 1 << 24;
/// No initial state: upwards, and a default for what is no number.
pub(crate) const UPWARDS: Rounding = 0b01 << 22 | 1 << 25;

/// How this thread computes.
pub(crate) fn rounding() -> Rounding {
    let fpcr;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, fpcr", out(reg) fpcr) };
    fpcr
}

/// As `fesetround` does it.
pub(crate) fn round(fpcr: Rounding) {
    // SAFETY: the tests compute nothing with fractions before they set it back.
    unsafe { asm!("msr fpcr, {}", in(reg) fpcr) };
}

/// One of the two with a part of the other: the rounding, or the rest.
pub(crate) fn with_part(number: usize, of: Rounding, rest: Rounding) -> Rounding {
    let mode = 0b11 << 22;
    let part = [mode, !mode][number];
    of & part | rest & !part
}

pub(crate) fn word(fpcr: Rounding) -> u64 {
    fpcr
}

/// The signal of [`traps`].
pub(crate) const TRAP: c_int = libc::SIGTRAP;

/// What compilers make of code that is never reached, and of `abort`. A division by zero is 0.
pub(crate) fn traps() -> u32 {
    // SAFETY: none: the fault is the test.
    unsafe { asm!("brk #1") };
    0
}

pub(crate) fn reads(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { asm!("ldr {0:w}, [{0}]", inout(reg) address => _) };
    0
}

/// Jumps to where no instruction can begin.
pub(crate) fn is_misaligned() -> u32 {
    let here = is_misaligned as fn() -> u32;
    jumps_to(here as usize + 2)
}

pub(crate) fn has_no_instruction() -> u32 {
    // SAFETY: as above.
    unsafe { asm!("udf #0") };
    0
}

pub(crate) fn jumps_to(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { asm!("blr {}", in(reg) address, clobber_abi("C")) };
    0
}

/// Changes everything that an escape has to put in order, and faults with SIGILL.
pub(crate) fn spoil(fpcr: Rounding) -> ! {
    // SAFETY: as above.
    unsafe {
        asm!(
            "msr fpcr, {0}", "mov x19, #1", "mov x20, #1", "mov x21, #1", "mov x22, #1", "mov x23, #1", "mov x24, #1", "mov x25, #1",
            "mov x26, #1", "mov x27, #1", "mov x28, #1", "mov x29, #1", "fmov d8, x19", "fmov d9, x19", "fmov d10, x19",
            "fmov d11, x19", "fmov d12, x19", "fmov d13, x19", "fmov d14, x19", "fmov d15, x19", "udf #0",
            in(reg) fpcr,
            options(noreturn)
        )
    }
}

/// Checks what [`spoil`] changed beside the rounding and the registers that functions preserve: nothing.
pub(crate) fn check_unspoilt() {}
