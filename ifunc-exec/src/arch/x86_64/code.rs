//! Machine code as debuggers, unwinders and the instruction fetch know it.

use object::elf::{R_X86_64_64, RelocationType};

/// The relocation of a word that holds an address.
pub(crate) const ABSOLUTE_64: RelocationType = R_X86_64_64;
/// The number of the stack pointer in DWARF.
pub(crate) const STACK_POINTER: u8 = 7;
/// The number of the return address in DWARF. A call pushes it.
pub(crate) const RETURN_ADDRESS: u8 = 16;
/// Whether a function finds its return address in a register, and not on the stack.
pub(crate) const RETURNS_BY_REGISTER: bool = false;
/// The numbers in DWARF of the registers that functions preserve, without the stack pointer.
pub(crate) const CALLEE_SAVED: [u8; 6] = [3, 6, 12, 13, 14, 15];
/// The usual common entry of unwind information, from its version on. Version 1, "zR", alignments 1 and -8, register 16, one byte:
/// relative to its place, signed, of 32 bits.
pub(crate) const USUAL_CIE: [u8; 9] = *b"\x01zR\0\x01\x78\x10\x01\x1b";

/// Whether other threads may go on with what they have fetched where code was written that never ran. The processor keeps
/// its instruction cache coherent; what a thread has decoded, the barrier discards before an address is used again.
pub(crate) const WRITTEN_CODE_NEEDS_BARRIER: bool = false;

/// Makes code that was written visible to the instruction fetch: the processor does it.
#[inline(always)]
pub(crate) fn publish_code(_: &[u8]) {}

/// Functions that differ in the number that they return, 1 and 2: for a processor that has to be asked whether it runs the second where
/// it ran the first. This one always does.
pub(crate) const PROBES: [&[u8]; 0] = [];

/// A session begins: nothing has to be done for code that another thread has published.
#[inline(always)]
pub(crate) fn enter_session() {}

/// Without a barrier in the kernel: nothing more has to be done.
pub(crate) fn synchronize_at_sessions() {}

/// The address that a word is, which a call left on the stack.
#[inline(always)]
pub(crate) fn return_address(word: usize) -> usize {
    word
}

/// Length and opcode of `call rel32`.
const CALL: usize = 5;
const CALL_OPCODE: u8 = 0xe8;

/// Where the call in front of `offset` goes; `None`: there is no call of a place in the image.
pub(crate) fn callee(code: &[u8], offset: u32) -> Option<u32> {
    let call = code.get((offset as usize).checked_sub(CALL)?..offset as usize)?;
    let (&opcode, distance) = call.split_first()?;
    if opcode != CALL_OPCODE {
        return None;
    }
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    offset
        .checked_add_signed(distance)
        .filter(|&to| (to as usize) < code.len())
}
