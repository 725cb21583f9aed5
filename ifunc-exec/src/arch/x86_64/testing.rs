//! What tests of the gate need of x86-64: how floats are computed, faults, and machine code.

pub(crate) mod code;

use std::arch::asm;
use std::ffi::c_int;

/// The rounding and the masks of MXCSR, and the control word of the x87.
pub(crate) type Rounding = (u32, u16);
/// What a new thread has: to the nearest, all exceptions masked, the x87 in extended precision.
pub(crate) const AT_FIRST: Rounding = (0x1f80, 0x037f);
pub(crate) const TOWARDS_ZERO: Rounding = (0x7f80, 0x0f7f);
/// No initial state: upwards, and the x87 in double precision.
pub(crate) const UPWARDS: Rounding = (0x5f80, 0x0a7f);

/// How this thread computes.
pub(crate) fn rounding() -> Rounding {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: both are written.
    unsafe { asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut x87) };
    (mxcsr & 0xffc0, x87)
}

/// As `fesetround` does it.
pub(crate) fn round((mxcsr, x87): Rounding) {
    // SAFETY: both are read; the tests compute nothing with fractions before they set it back.
    unsafe {
        asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const mxcsr, in(reg) &raw const x87);
    }
}

/// One of the two with a part of the other: MXCSR, or the x87.
pub(crate) fn with_part(number: usize, of: Rounding, rest: Rounding) -> Rounding {
    [(of.0, rest.1), (rest.0, of.1)][number]
}

pub(crate) fn word((mxcsr, x87): Rounding) -> u64 {
    u64::from(mxcsr) << 16 | u64::from(x87)
}

/// The signal of [`traps`].
pub(crate) const TRAP: c_int = libc::SIGFPE;

/// Divides by zero.
pub(crate) fn traps() -> u32 {
    // SAFETY: none: the fault is the test.
    unsafe {
        asm!("xor edx, edx", "mov eax, 1", "xor ecx, ecx", "div ecx", out("eax") _, out("ecx") _, out("edx") _)
    };
    0
}

pub(crate) fn reads(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { asm!("mov {0:e}, [{0}]", inout(reg) address => _) };
    0
}

/// Sets the flag by which the processor refuses unaligned accesses, and makes one.
pub(crate) fn is_misaligned() -> u32 {
    // SAFETY: as above.
    unsafe {
        asm!(
            "push 0", "pushfq", "or dword ptr [rsp], 0x40000", "popfq", "mov {0:e}, [rsp + 1]", "pop {0}",
            out(reg) _
        );
    }
    0
}

pub(crate) fn has_no_instruction() -> u32 {
    // SAFETY: as above.
    unsafe { asm!("ud2") };
    0
}

pub(crate) fn jumps_to(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("C")) };
    0
}

/// Changes everything that an escape has to put in order, and faults with SIGILL.
pub(crate) fn spoil((mxcsr, x87): Rounding) -> ! {
    // SAFETY: as above.
    unsafe {
        asm!(
            "pushfq", "or dword ptr [rsp], 0x40000", "popfq", "ldmxcsr [{mxcsr}]", "fldcw [{x87}]", "fld1", "fld1", "fld1", "std",
            "mov rbp, 1", "mov r12, 1", "mov r13, 1", "mov r14, 1", "mov r15, 1", "ud2",
            mxcsr = in(reg) &raw const mxcsr, x87 = in(reg) &raw const x87,
            options(noreturn)
        )
    }
}

/// Checks what [`spoil`] changed beside the rounding and the registers that functions preserve.
pub(crate) fn check_unspoilt() {
    let (mut environment, flags) = ([0u32; 7], 0u64);
    let mut flags = flags;
    // SAFETY: each writes the local that it is given.
    unsafe {
        asm!("fnstenv [{0}]", "fldenv [{0}]", "pushfq", "pop {1}", in(reg) &raw mut environment, out(reg) flags);
    }
    assert_eq!(environment[2] & 0xffff, 0xffff, "no register of the x87 is used");
    assert_eq!(flags & 1 << 10, 0, "strings are copied upwards");
    assert_eq!(flags & 1 << 18, 0, "alignment is not checked");
}
