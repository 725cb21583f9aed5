//! Functions in assembly that take the arguments of every signature, and the few instructions that lead to one of them.

use super::code::sets;

/// Arguments that are no floats and are passed in registers.
pub(crate) const ARGUMENT_WORDS: usize = 8;

/// Defines a function in assembly that takes the arguments of every signature: it calls `call(w9, registers)`, and returns what that
/// returns.
macro_rules! function_of_any_signature {
    ($name:ident, $call:path) => {
        unsafe extern "C" {
            fn $name();
        }

        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".hidden ", stringify!($name)),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa x29, 16",
            "sub sp, sp, #144",
            "stp x0, x1, [sp]",
            "stp x2, x3, [sp, #16]",
            "stp x4, x5, [sp, #32]",
            "stp x6, x7, [sp, #48]",
            "stp d0, d1, [sp, #64]",
            "stp d2, d3, [sp, #80]",
            "stp d4, d5, [sp, #96]",
            "stp d6, d7, [sp, #112]",
            "add x10, x29, #16",
            "str x10, [sp, #128]",
            "mov w0, w9",
            "mov x1, sp",
            "bl {call}",
            "ldr d0, [sp, #136]",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            ".popsection",
            call = sym $call,
        );
    };
}
pub(crate) use function_of_any_signature;

/// The instructions of a function that continues in one of any signature with this number: `movz w9, LOW; movk w9, HIGH, lsl 16;
/// ldr x16, TO; br x16`, and the address. A guarded page can be entered by a branch to x16 as by a call.
pub(crate) fn forwarding_function(number: u32, to: u64) -> Vec<u8> {
    let mut code = sets(9, number).to_vec();
    code.extend(
        [0x5800_0050_u32, 0xd61f_0200]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    code.extend(to.to_le_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarding_function_loads_its_number_and_goes_on_elsewhere() {
        let target = 0x1112_1314_1516_1718_u64;
        // mov w9, #0x0304; movk w9, #0x0102, lsl #16; ldr x16, .+8; br x16
        let words = [0x5280_6089_u32, 0x72a0_2049, 0x5800_0050, 0xd61f_0200];
        let mut expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        expected.extend(target.to_le_bytes());
        assert_eq!(forwarding_function(0x0102_0304, target), expected);
    }
}
