//! Machine code of AArch64.

use super::code::{assembled, sets};

/// Where the images of these tests have their read-write part: the largest page of AArch64.
pub(crate) const RW_AT: u32 = 0x1_0000;

/// Most memory of an image: code, and some of the largest pages.
pub(crate) const IMAGE_MEMORY: usize = 1 << 18;

/// Bytes of code for some images with statics, each of which takes two of the largest pages. Under an emulator no address is used again, so it
/// is room for all of a test.
pub(crate) const SMALL_CACHE: usize = 8 << 20;

/// The offset of the slot, which ends this code.
fn with_slot(code: Vec<u8>) -> (Vec<u8>, u32) {
    let slot = code.len() as u32 - 8;
    assert!(slot.is_multiple_of(8));
    (code, slot)
}

/// Adds the payload to the target, and answers the sum.
pub(crate) fn add() -> Vec<u8> {
    assembled!(
        "cmp x1, #8",
        "b.ne 2f",
        "ldr x9, [x0]",
        "ldr x10, [x2]",
        "add x9, x9, x10",
        "str x9, [x2]",
        "cbz x3, 1f",
        "ldr x10, [x3, #16]",
        "cbz x10, 1f",
        "str x9, [x10]",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "1: mov w0, wzr",
        "ret",
        "2: mov w0, #1",
        "ret",
    )
}

/// What the C driver of the builder writes beside `X_main` (`gcc -Os`, for one that returns a status). It calls what precedes it.
fn batch() -> Vec<u8> {
    assembled!(
        "stp x29, x30, [sp, -112]!",
        "mov x29, sp",
        "stp x19, x20, [sp, 16]",
        "mov x19, x0",
        "mov x20, x3",
        "stp x21, x22, [sp, 32]",
        "stp x23, x24, [sp, 48]",
        "mov w24, 0",
        "stp x25, x26, [sp, 64]",
        "ldp x26, x23, [x19, 64]",
        "stp x27, x28, [sp, 80]",
        "ldr w28, [x0, 32]",
        "ldp x21, x27, [x19, 48]",
        "ldr x22, [x19, 24]",
        "ldp x25, x0, [x0, 8]",
        "str x0, [sp, 96]",
        "4: ldr x1, [sp, 96]",
        "add w24, w24, 1",
        "str w24, [x19, 36]",
        "mov x3, x20",
        "str xzr, [x20, 32]",
        "mov x0, x25",
        "str x2, [sp, 104]",
        "bl .",
        "ldr x1, [x20, 16]",
        "ldr x2, [sp, 104]",
        "cbz x1, 5f",
        "ldr x4, [x20, 32]",
        "2: cmp w0, 0",
        "ccmp x4, x27, 2, eq",
        "b.hi 1f",
        "str w4, [x26]",
        "add x4, x4, 7",
        "and x4, x4, -8",
        "add x25, x25, x22",
        "cmp x21, x4",
        "add x26, x26, x23",
        "csel x4, x21, x4, ls",
        "cmp w28, w24",
        "add x1, x1, x4",
        "str x1, [x20, 16]",
        "sub x21, x21, x4",
        "ccmp x27, x21, 2, ne",
        "b.ls 4b",
        "mov w0, 0",
        "1: ldp x19, x20, [sp, 16]",
        "ldp x21, x22, [sp, 32]",
        "ldp x23, x24, [sp, 48]",
        "ldp x25, x26, [sp, 64]",
        "ldp x27, x28, [sp, 80]",
        "ldp x29, x30, [sp], 112",
        "ret",
        "5: mov x4, 0",
        "b 2b",
    )
}

/// Offset in [`batch`] of the call of `X_main`.
const CALL: usize = 23 * 4;

/// Adds a function that runs batches of what is at `main`. Returns where it begins.
pub(crate) fn append_batch(rx: &mut Vec<u8>, main: u32) -> u32 {
    let at = rx.len().next_multiple_of(16);
    rx.resize(at, 0);
    rx.extend(batch());
    let distance = (main as i32 - (at + CALL) as i32) / 4;
    let call = 0b10_0101 << 26 | distance.cast_unsigned() & 0x03ff_ffff;
    rx[at + CALL..][..4].copy_from_slice(&call.to_le_bytes());
    at as u32
}

/// Replaces the target by the payload.
pub(crate) fn set() -> Vec<u8> {
    assembled!("ldr x9, [x0]", "str x9, [x2]", "mov w0, wzr", "ret")
}

/// Panics through the slot.
pub(crate) fn panics() -> (Vec<u8>, u32) {
    let rx = assembled!(
        "stp x29, x30, [sp, #-16]!",
        "ldr x9, 8f",
        "adr x0, 9f",
        "mov x1, #4",
        "adr x2, 9f + 4",
        "mov x3, #4",
        "mov w4, #7",
        "mov w5, #9",
        "ldr x9, [x9]",
        "blr x9",
        "8: .xword 0",
        "9: .ascii \"ouchx.rs\"",
    );
    let slot = rx.len() as u32 - 16;
    (rx, slot)
}

/// Where the call in [`panics`] returns to.
pub(crate) const PANICS_BEFORE: u32 = 0x28;

/// Adds the payload to an atomic target and answers the sum, on several threads.
pub(crate) fn adds_shared() -> Vec<u8> {
    assembled!(
        "ldr x9, [x0]",
        "1: ldaxr x10, [x2]",
        "add x10, x10, x9",
        "stlxr w11, x10, [x2]",
        "cbnz w11, 1b",
        "ldr x11, [x3, #16]",
        "cbz x11, 2f",
        "str x10, [x11]",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "2: mov w0, wzr",
        "ret",
    )
}

/// Calls its import.
pub(crate) fn meets() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "stp x29, x30, [sp, #-16]!",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "mov w0, wzr",
        "ret",
        ".p2align 3",
        "8: .xword 0",
    ))
}

/// Counts its own invocations at [`RW_AT`] and answers the count.
pub(crate) fn counts() -> Vec<u8> {
    assembled!(
        "adr x9, . + 0x10000",
        "ldr x10, [x9]",
        "add x10, x10, #1",
        "str x10, [x9]",
        "ldr x11, [x3, #16]",
        "cbz x11, 1f",
        "str x10, [x11]",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "1: mov w0, wzr",
        "ret",
    )
}

/// Sets the word at [`RW_AT`] to the payload, as code that begins at `at`.
pub(crate) fn resets(at: u32) -> Vec<u8> {
    let mut rx = sets(10, at).to_vec();
    rx.extend(assembled!(
        "adr x9, . + 0xfff8",
        "sub x9, x9, x10",
        "ldr x10, [x0]",
        "str x10, [x9]",
        "mov w0, wzr",
        "ret",
    ));
    rx
}

/// Answers as many bytes as the payload's number, each the lowest byte of that number.
pub(crate) fn fills() -> Vec<u8> {
    assembled!(
        "ldr x9, [x0]",
        "ldr x10, [x3, #16]",
        "cbz x10, 2f",
        "str x9, [x3, #32]",
        "ldr x11, [x3, #24]",
        "cmp x9, x11",
        "b.hi 2f",
        "mov x11, x9",
        "1: cbz x11, 2f",
        "strb w9, [x10], #1",
        "sub x11, x11, #1",
        "b 1b",
        "2: mov w0, wzr",
        "ret",
    )
}

/// Fails unless its payload is at a multiple of 64.
pub(crate) fn wants_alignment() -> Vec<u8> {
    assembled!("tst x0, #63", "cset w0, ne", "ret")
}

/// Calls its import with the payload, and answers the payload.
pub(crate) fn tells() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "stp x19, x30, [sp, #-32]!",
        "str x20, [sp, #16]",
        "mov x19, x3",
        "ldr x20, [x0]",
        "mov x0, x20",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "cbz x19, 1f",
        "ldr x9, [x19, #16]",
        "cbz x9, 1f",
        "str x20, [x9]",
        "mov x9, #8",
        "str x9, [x19, #32]",
        "1: ldr x20, [sp, #16]",
        "ldp x19, x30, [sp], #32",
        "mov w0, wzr",
        "ret",
        ".p2align 3",
        "8: .xword 0",
    ))
}

/// Calls its import on its target arguments, and answers the result.
pub(crate) fn peeks() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "stp x19, x30, [sp, #-16]!",
        "mov x19, x3",
        "mov x0, x2",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldr x9, [x19, #16]",
        "str x0, [x9]",
        "mov x9, #8",
        "str x9, [x19, #32]",
        "ldp x19, x30, [sp], #16",
        "mov w0, wzr",
        "ret",
        ".p2align 3",
        "8: .xword 0",
    ))
}

/// Forwards to what begins at its end, and returns what its import says.
pub(crate) fn forwards() -> (Vec<u8>, u32) {
    let rx = assembled!(
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x3",
        "mov x1, xzr",
        "adr x2, 9f",
        "mov x3, xzr",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "ret",
        "8: .xword 0",
        "9:",
    );
    with_slot(rx)
}

/// Answers eight bytes.
pub(crate) fn answers() -> Vec<u8> {
    assembled!(
        "ldr x9, [x3, #16]",
        "cbz x9, 1f",
        "mov x10, #8",
        "str x10, [x3, #32]",
        "ldr x11, [x3, #24]",
        "cmp x11, x10",
        "b.lo 1f",
        "str x9, [x9]",
        "1: mov w0, wzr",
        "ret",
    )
}

/// Allocates where the stack of half a mebibyte is nearly used up.
pub(crate) fn uses_the_stack_up() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "sub sp, sp, #0x78, lsl #12",
        "mov x0, #8",
        "mov x1, #8",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "udf #0",
        ".p2align 3",
        "8: .xword 0",
    ))
}

/// Ifuncs that end early: name, machine code, and a part of the error that the source gets.
pub(crate) fn ends_early() -> [(&'static str, Vec<u8>, &'static str); 6] {
    [
        (
            "reads_null",
            assembled!("mov x0, xzr", "ldr x0, [x0]", "ret"),
            "SIGSEGV (not mapped), address 0x0, at offset 0x4 of the image: reads_null",
        ),
        (
            "jumps",
            assembled!("mov x9, #64", "blr x9", "ret"),
            "SIGSEGV (not mapped), address 0x40, outside of the image",
        ),
        // What a compiler makes of a check for a division by zero.
        (
            "divides",
            assembled!("cbnz x0, 1f", "ret", "1: brk #1"),
            "SIGTRAP (a trap instruction), at offset 0x8 of the image: divides",
        ),
        (
            "is_illegal",
            is_illegal(),
            "SIGILL (no valid instruction), at offset 0x0 of the image: is_illegal",
        ),
        (
            "recurses",
            assembled!("1: stp x29, x30, [sp, #-16]!", "bl 1b"),
            "stack overflow (SIGSEGV, address 0x",
        ),
        (
            "loops",
            assembled!("str xzr, [x2]", "1: b 1b"),
            "it ran for longer than 20ms, at offset 0x4 of the image",
        ),
    ]
}

pub(crate) fn is_illegal() -> Vec<u8> {
    assembled!("udf #0")
}

/// Writes to the address that is its payload.
pub(crate) fn writes_anywhere() -> Vec<u8> {
    assembled!(
        "ldr x9, [x0]",
        "mov w10, #0xbad",
        "str w10, [x9]",
        "mov w0, wzr",
        "ret"
    )
}

/// Reads the address that is its payload.
pub(crate) fn adds_what_it_finds() -> Vec<u8> {
    assembled!(
        "ldr x9, [x0]",
        "ldr x9, [x9]",
        "ldr x10, [x2]",
        "add x9, x9, x10",
        "str x9, [x2]",
        "mov w0, wzr",
        "ret",
    )
}

/// Allocates a mebibyte, writes to it, and executes no valid instruction. `static_data`: it keeps the pointer at [`RW_AT`], and reads what
/// the invocation before it has left there.
pub(crate) fn allocates_and_faults(static_data: bool) -> (Vec<u8>, u32) {
    let begins = match static_data {
        true => assembled!(
            "adr x19, . + 0x10000",
            "ldr x9, [x19]",
            "cbz x9, 1f",
            "ldrb w9, [x9]",
            "1:"
        ),
        false => assembled!("sub sp, sp, #16", "mov x19, sp"),
    };
    let rest = assembled!(
        "mov x0, #0x100000",
        "mov x1, #16",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "mov w9, #1",
        "strb w9, [x0]",
        "str x0, [x19]",
        "udf #0",
        "nop",
        "8: .xword 0",
    );
    with_slot([begins, rest].concat())
}
