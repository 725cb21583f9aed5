//! Functions in assembly that take the arguments of every signature, and the few instructions that lead to one of them.

/// Arguments that are no floats and are passed in registers.
pub(crate) const ARGUMENT_WORDS: usize = 6;

/// Defines a function in assembly that takes the arguments of every signature: it calls `call(eax, registers)`, and returns what that
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
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, 128",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov [rsp + 24], rcx",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "movsd [rsp + 48], xmm0",
            "movsd [rsp + 56], xmm1",
            "movsd [rsp + 64], xmm2",
            "movsd [rsp + 72], xmm3",
            "movsd [rsp + 80], xmm4",
            "movsd [rsp + 88], xmm5",
            "movsd [rsp + 96], xmm6",
            "movsd [rsp + 104], xmm7",
            "lea rcx, [rbp + 16]",
            "mov [rsp + 112], rcx",
            "mov edi, eax",
            "mov rsi, rsp",
            "call {call}",
            "movsd xmm0, [rsp + 120]",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            ".popsection",
            call = sym $call,
        );
    };
}
pub(crate) use function_of_any_signature;

/// The instructions of a function that continues in one of any signature with this number: `mov eax, NUMBER; movabs r11, TO; jmp r11`.
pub(crate) fn forwarding_function(number: u32, to: u64) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(number.to_le_bytes());
    code.extend([0x49, 0xbb]);
    code.extend(to.to_le_bytes());
    code.extend([0x41, 0xff, 0xe3]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarding_function_loads_its_number_and_goes_on_elsewhere() {
        let target = 0x1112_1314_1516_1718_u64;
        let expected = [
            &[0xb8, 4, 3, 2, 1][..],
            &[0x49, 0xbb],
            &target.to_le_bytes(),
            &[0x41, 0xff, 0xe3],
        ];
        assert_eq!(forwarding_function(0x0102_0304, target), expected.concat());
    }
}
