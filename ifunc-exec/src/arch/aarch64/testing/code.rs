//! Machine code of the images that tests install. Code with imports comes with the offset of its slot.

/// Assembles instructions, and returns their bytes.
macro_rules! assembled {
    ($($line:literal),* $(,)?) => {{
        let (begin, end): (*const u8, *const u8);
        // SAFETY: the addresses of two labels in read-only data.
        unsafe {
            std::arch::asm!(
                ".pushsection .rodata.ifunc_test_code,\"a\",@progbits", ".p2align 4", "771:",
                $($line,)*
                "772:", ".popsection",
                "adrp {0}, 771b", "add {0}, {0}, :lo12:771b", "adrp {1}, 772b", "add {1}, {1}, :lo12:772b",
                out(reg) begin, out(reg) end,
            );
        }
        // SAFETY: what is between the labels.
        unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }.to_vec()
    }};
}

#[allow(unused_imports, reason = "the tests of `ifunc-rt` use it")]
pub(crate) use assembled;

const RET: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();

/// Returns this number.
pub(crate) fn returns(number: u32) -> Vec<u8> {
    [&sets(0, number)[..], &RET].concat()
}

/// `movz wREGISTER, LOW; movk wREGISTER, HIGH, lsl 16`
pub(crate) fn sets(register: u32, value: u32) -> [u8; 8] {
    let low = 0x5280_0000 | (value & 0xffff) << 5 | register;
    let high = 0x72a0_0000 | (value >> 16) << 5 | register;
    (u64::from(high) << 32 | u64::from(low)).to_le_bytes()
}

/// The offset of the slot, which ends this code.
fn with_slot(code: Vec<u8>) -> (Vec<u8>, u32) {
    let slot = code.len() as u32 - 8;
    assert!(slot.is_multiple_of(8));
    (code, slot)
}

/// Returns the word so many bytes from its beginning: `ldr w0, … ; ret`.
pub(crate) fn loads_from(distance: usize) -> Vec<u8> {
    let load = 0x1800_0000 | (distance as u32 / 4) << 5;
    [load.to_le_bytes(), RET].concat()
}

/// Waits a little and returns.
pub(crate) fn waits_and_returns(number: u32) -> Vec<u8> {
    let mut code = assembled!("mov w9, #50", "1:", "yield", "subs w9, w9, #1", "b.ne 1b");
    code.extend(returns(number));
    code
}

/// Adds the payload to the target and answers the payload's length, 8.
pub(crate) fn add() -> Vec<u8> {
    assembled!(
        "ldr x9, [x0]",
        "ldr x10, [x2]",
        "add x10, x10, x9",
        "str x10, [x2]",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "mov w0, wzr",
        "ret",
    )
}

/// Panics with the message `ouch`, through the slot.
pub(crate) fn panics() -> (Vec<u8>, u32) {
    let code = assembled!(
        "stp x29, x30, [sp, #-16]!",
        "ldr x9, 8f",
        "adr x0, 9f",
        "mov x1, #4",
        "mov x2, xzr",
        "mov x3, xzr",
        "ldr x9, [x9]",
        "blr x9",
        "8:",
        ".xword 0",
        "9:",
        ".ascii \"ouch\"",
    );
    let slot = code.len() as u32 - 12;
    (code, slot)
}

/// Calls its import with 8 and 8, again and again with less stack, until that ends.
pub(crate) fn deep() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "1:",
        "sub sp, sp, #0x210",
        "mov x0, #8",
        "mov x1, #8",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "b 1b",
        ".p2align 3",
        "8:",
        ".xword 0",
    ))
}

/// Calls its only import with these arguments, of 32 bits each: through the slot, as compiled code does.
pub(crate) fn calls(arguments: [u32; 3]) -> (Vec<u8>, u32) {
    let mut code = Vec::new();
    for (register, value) in (0..).zip(arguments) {
        code.extend(sets(register, value));
    }
    code.extend(assembled!(
        "stp x29, x30, [sp, #-16]!",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "mov w0, wzr",
        "ret",
        ".p2align 3",
        "8:",
        ".xword 0",
    ));
    with_slot(code)
}

/// Reads at address 0.
pub(crate) fn reads_null() -> Vec<u8> {
    assembled!("mov x0, xzr", "ldr x0, [x0]", "ret")
}

/// Offset in [`reads_null`] of the instruction that reads.
pub(crate) const READS_AT: u32 = 4;

/// Jumps to 64.
pub(crate) fn jumps() -> Vec<u8> {
    assembled!("mov x9, #64", "br x9")
}

pub(crate) fn loops() -> Vec<u8> {
    assembled!("nop", "1:", "b 1b")
}

/// Offset of the loop in [`loops`].
pub(crate) const LOOPS_AT: u32 = 4;

/// States an answer of 8 bytes and returns this code.
pub(crate) fn states_eight(code: u8) -> Vec<u8> {
    let mut rx = assembled!("mov x9, #8", "str x9, [x3, #32]");
    rx.extend(returns(code.into()));
    rx
}

/// Asks its import for an answer of 5000 bytes, states one of 8 and returns this code.
pub(crate) fn asks(code: u8) -> (Vec<u8>, u32) {
    let mut rx = assembled!(
        "stp x3, x30, [sp, #-16]!",
        "mov x0, x3",
        "mov x1, #5000",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x3, x30, [sp], #16",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "b 9f",
        "8:",
        ".xword 0",
        "9:",
    );
    let slot = rx.len() as u32 - 8;
    rx.extend(returns(code.into()));
    (rx, slot)
}

/// Allocates 64 bytes twice by its first import, frees the second by its second one, resizes the first to the payload's number by its
/// third one, and writes what is left to the target argument. It then ends by an instruction that is none if the number is odd, and
/// returns otherwise.
pub(crate) fn holds_one() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "stp x19, x30, [sp, #-32]!",
        "stp x20, x21, [sp, #16]",
        "mov x20, x2",
        "ldr x19, [x0]",
        "mov x0, #64",
        "mov x1, #16",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "mov x21, x0",
        "mov x0, #64",
        "mov x1, #16",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "mov x1, #64",
        "mov x2, #16",
        "ldr x9, 8f",
        "ldr x9, [x9, #8]",
        "blr x9",
        "mov x0, x21",
        "mov x1, #64",
        "mov x2, #16",
        "mov x3, x19",
        "ldr x9, 8f",
        "ldr x9, [x9, #16]",
        "blr x9",
        "str x0, [x20]",
        "tbz x19, #0, 1f",
        "udf #0",
        "1:",
        "ldp x20, x21, [sp, #16]",
        "ldp x19, x30, [sp], #32",
        "mov w0, wzr",
        "ret",
        ".p2align 3",
        "8:",
        ".xword 0",
    ))
}

/// Sends to its own beginning, or to what is inside of itself, and returns what its import says.
pub(crate) fn sends(is_inside: bool) -> (Vec<u8>, u32) {
    let begin = match is_inside {
        false => assembled!("adr x2, . + 0"),
        true => assembled!("adr x2, . + 4"),
    };
    let rest = assembled!(
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x3",
        "mov x1, xzr",
        "mov x3, xzr",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "ret",
        "8:",
        ".xword 0",
    );
    with_slot([begin, rest].concat())
}

/// Answers the address that its import is bound to.
pub(crate) fn finds() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "ldr x10, [x3, #16]",
        "str x9, [x10]",
        "mov x9, #8",
        "str x9, [x3, #32]",
        "mov w0, wzr",
        "ret",
        "8:",
        ".xword 0",
    ))
}

/// Answers what its first import returns and, after it, what its second import holds.
pub(crate) fn reads_versions() -> (Vec<u8>, u32) {
    with_slot(assembled!(
        "stp x19, x30, [sp, #-16]!",
        "mov x19, x3",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldr x9, 8f",
        "ldr x9, [x9, #8]",
        "ldr x9, [x9]",
        "ldr x10, [x19, #16]",
        "stp x0, x9, [x10]",
        "mov x9, #16",
        "str x9, [x19, #32]",
        "mov w0, wzr",
        "ldp x19, x30, [sp], #16",
        "ret",
        ".p2align 3",
        "8:",
        ".xword 0",
    ))
}

/// Replaces `version` by a function of its own, which returns 9, or by one at an address that is far away.
pub(crate) fn replaces_by_its_own(signature: &[u8; 17], is_far: bool) -> (Vec<u8>, u32) {
    let mut rx = match is_far {
        false => assembled!("mov x10, #0", "nop"),
        true => assembled!("mov x10, #0x10000000", "nop"),
    };
    rx.extend(assembled!(
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x3",
        "adr x1, 7f",
        "mov x2, #7",
        "adr x3, 7f + 8",
        "mov x4, #17",
        "adr x5, 6f",
        "add x5, x5, x10",
        "ldr x9, 8f",
        "ldr x9, [x9]",
        "blr x9",
        "ldp x29, x30, [sp], #16",
        "ret",
        "6:",
        "mov x0, #9",
        "ret",
        ".p2align 3",
        "8:",
        ".xword 0",
        "7:",
        ".ascii \"version\\0\"",
    ));
    let slot = rx.len() as u32 - 16;
    rx.extend_from_slice(signature);
    (rx, slot)
}

/// Bytes of the shortest instruction.
pub(crate) const SHORTEST: usize = 4;

/// Writes an instruction that calls what is at `to`, and returns to `back`.
pub(crate) fn put_call(code: &mut [u8], back: usize, to: usize) {
    let from = back - 4;
    let distance = (to as i32 - from as i32) / 4;
    let call = 0b10_0101 << 26 | distance.cast_unsigned() & 0x03ff_ffff;
    code[from..back].copy_from_slice(&call.to_le_bytes());
}
