//! Machine code as the instruction fetch, debuggers and unwinders know it.

use std::arch::asm;
use std::sync::atomic::{AtomicBool, Ordering};

use object::elf::{R_AARCH64_ABS64, RelocationType};

/// The relocation of a word that holds an address.
pub(crate) const ABSOLUTE_64: RelocationType = R_AARCH64_ABS64;
/// The number of the stack pointer in DWARF.
pub(crate) const STACK_POINTER: u8 = 31;
/// The number of the return address in DWARF: x30.
pub(crate) const RETURN_ADDRESS: u8 = 30;
/// Whether a function finds its return address in a register, and not on the stack.
pub(crate) const RETURNS_BY_REGISTER: bool = true;
/// The numbers in DWARF of the registers that functions preserve, without the stack pointer.
pub(crate) const CALLEE_SAVED: [u8; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
/// The usual common entry of unwind information, from its version on. Version 1, "zR", alignments 4 and -8, register 30, one byte:
/// relative to its place, signed, of 32 bits.
pub(crate) const USUAL_CIE: [u8; 9] = *b"\x01zR\0\x04\x78\x1e\x01\x1b";

/// Whether other threads may go on with what they have fetched where code was written that never ran. A thread must pass an `isb`
/// first, or anything else that synchronizes its context: the barrier does it on all cores.
pub(crate) const WRITTEN_CODE_NEEDS_BARRIER: bool = true;

/// Makes code that was written visible to the instruction fetch, on all cores, and fetched anew by this one.
pub(crate) fn publish_code(code: &[u8]) {
    let types: u64;
    // SAFETY: reads a register that Linux lets programs read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) types, options(nomem, nostack, preserves_flags)) };
    let caches = Caches::of(types);
    let range = code.as_ptr_range();
    // SAFETY: operations on lines of memory that is mapped and readable; they change no content.
    unsafe {
        if let Some(line) = caches.data {
            for at in lines(range.start.addr()..range.end.addr(), line) {
                asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags));
            }
        }
        asm!("dsb ish", options(nostack, preserves_flags));
        if let Some(line) = caches.instructions {
            for at in lines(range.start.addr()..range.end.addr(), line) {
                asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags));
            }
        }
        asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}

/// The lines of the caches that have to be maintained, in bytes; `None`: the processor does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Caches {
    data: Option<usize>,
    instructions: Option<usize>,
}

impl Caches {
    /// Of the register CTR_EL0.
    fn of(types: u64) -> Self {
        let (idc, dic) = (types >> 28 & 1 == 1, types >> 29 & 1 == 1);
        let line = |shift: u32| 4 << (types >> shift & 0xf);
        Self {
            data: (!idc).then(|| line(16)),
            instructions: (!dic).then(|| line(0)),
        }
    }
}

/// The address of each line that a range touches.
fn lines(range: std::ops::Range<usize>, line: usize) -> impl Iterator<Item = usize> {
    (range.start & !(line - 1)..range.end).step_by(line)
}

/// `movz wREGISTER, LOW; movk wREGISTER, HIGH, lsl 16`
pub(super) fn sets(register: u32, value: u32) -> [u8; 8] {
    let (low, high) = (value & 0xffff, value >> 16);
    let words = [
        0x5280_0000 | low << 5 | register,
        0x72a0_0000 | high << 5 | register,
    ];
    let [a, b] = words.map(u32::to_le_bytes);
    std::array::from_fn(|at| if at < 4 { a[at] } else { b[at - 4] })
}

/// Functions that return 1 and 2: see `arena`. `mov w0, NUMBER; ret`.
pub(crate) const PROBES: [&[u8]; 2] = [
    &[0x20, 0, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
    &[0x40, 0, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
];

/// The kernel has no barrier that reaches other threads. Each passes one when it begins a session.
static SYNCHRONIZES_AT_SESSIONS: AtomicBool = AtomicBool::new(false);

/// Without the kernel's barrier, lets each thread synchronize when it begins a session. A thread in a session does not: it runs code
/// that was written after it began, at addresses from which no code ran before. Processors fetch no instructions so far ahead of their
/// execution; the architecture does not promise it.
pub(crate) fn synchronize_at_sessions() {
    SYNCHRONIZES_AT_SESSIONS.store(true, Ordering::Release);
}

/// A session begins.
#[inline]
pub(crate) fn enter_session() {
    if SYNCHRONIZES_AT_SESSIONS.load(Ordering::Acquire) {
        // SAFETY: discards what was fetched ahead.
        unsafe { asm!("isb", options(nostack, preserves_flags)) };
    }
}

/// The address that a word is, which a call left on the stack: without the signature (PAC) that its function may have added. Where the
/// processor signs none, the instruction does nothing.
#[inline]
pub(crate) fn return_address(word: usize) -> usize {
    let stripped;
    // SAFETY: `xpaclri`, which changes x30 alone.
    unsafe { asm!("hint #7", inout("x30") word => stripped, options(nomem, nostack, preserves_flags)) };
    stripped
}

/// Where the call in front of `offset` goes; `None`: there is no call of a place in the image.
pub(crate) fn callee(code: &[u8], offset: u32) -> Option<u32> {
    let from = offset.checked_sub(4).filter(|from| from.is_multiple_of(4))?;
    let word = code.get(from as usize..offset as usize)?;
    let word = u32::from_le_bytes(word.try_into().ok()?);
    // `bl`, with the distance in words in the lower 26 bits.
    if word >> 26 != 0b10_0101 {
        return None;
    }
    let distance = (word << 6).cast_signed() >> 4;
    from.checked_add_signed(distance)
        .filter(|&to| (to as usize) < code.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_the_register_that_states_them() {
        // Cortex-A72: lines of 64 bytes, nothing automatic.
        let caches = Caches::of(0x8444_c004);
        assert_eq!((caches.data, caches.instructions), (Some(64), Some(64)));
        // Neoverse N1: both automatic.
        let caches = Caches::of(0xb444_c004);
        assert_eq!((caches.data, caches.instructions), (None, None));
        let caches = Caches::of(0x9445_c003);
        assert_eq!((caches.data, caches.instructions), (None, Some(32)));
    }

    #[test]
    fn every_line_that_a_range_touches_is_maintained() {
        let of = |range, line| lines(range, line).collect::<Vec<_>>();
        assert_eq!(of(0x100..0x180, 64), [0x100, 0x140]);
        assert_eq!(of(0x13f..0x181, 64), [0x100, 0x140, 0x180]);
        assert_eq!(of(0x140..0x141, 64), [0x140]);
        assert_eq!(of(0x140..0x140, 64), []);
    }

    #[test]
    fn a_call_is_found_before_the_address_that_it_returns_to() {
        let bl = |words: i32| (0b10_0101 << 26 | words as u32 & 0x03ff_ffff).to_le_bytes();
        let code = [bl(2), bl(-1), bl(1), 0xd503_201f_u32.to_le_bytes()].concat();
        assert_eq!(callee(&code, 4), Some(8));
        assert_eq!(callee(&code, 8), Some(0));
        assert_eq!(callee(&code, 12), Some(12));
        for none in [0, 3, 5, 16, 20, u32::MAX] {
            assert_eq!(callee(&code, none), None, "{none}");
        }
        assert_eq!(callee(&bl(1), 4), None, "beyond the code");
        assert_eq!(callee(&bl(-1), 4), None, "before the code");
    }

    #[test]
    fn an_address_without_a_signature_stays_as_it_is() {
        assert_eq!(return_address(0x1234_5678), 0x1234_5678);
    }
}
