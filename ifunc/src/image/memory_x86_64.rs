//! The memory functions that compilers emit calls to, for x86-64.
//!
//! They are in assembly, so that no compiler can turn one of them into a call of itself. Blocks of at most 32
//! bytes are loaded whole, by overlapping loads, before they are stored. Longer blocks move 32 bytes per
//! iteration.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

/// Moves `rdx` <= 32 bytes from `rsi` to `rdi` and returns; longer blocks continue at label 2. The ranges may
/// overlap.
macro_rules! short_move {
    () => {
        "mov rax, rdi
         cmp rdx, 32
         ja 2f
         cmp edx, 16
         jae 16f
         cmp edx, 8
         jae 8f
         cmp edx, 4
         jae 4f
         test edx, edx
         je 3f
         movzx ecx, byte ptr [rsi]
         movzx r8d, byte ptr [rsi + rdx - 1]
         mov r9, rdx
         shr r9
         movzx r10d, byte ptr [rsi + r9]
         mov byte ptr [rdi + r9], r10b
         mov byte ptr [rdi], cl
         mov byte ptr [rdi + rdx - 1], r8b
         3: ret
         4: mov ecx, dword ptr [rsi]
         mov r8d, dword ptr [rsi + rdx - 4]
         mov dword ptr [rdi], ecx
         mov dword ptr [rdi + rdx - 4], r8d
         ret
         8: mov rcx, qword ptr [rsi]
         mov r8, qword ptr [rsi + rdx - 8]
         mov qword ptr [rdi], rcx
         mov qword ptr [rdi + rdx - 8], r8
         ret
         16: movups xmm0, xmmword ptr [rsi]
         movups xmm1, xmmword ptr [rsi + rdx - 16]
         movups xmmword ptr [rdi], xmm0
         movups xmmword ptr [rdi + rdx - 16], xmm1
         ret"
    };
}

/// Moves `rdx` > 32 bytes forwards. The last 32 bytes are loaded first, so `rdi` may overlap `rsi` from
/// below.
macro_rules! forward {
    () => {
        "movups xmm2, xmmword ptr [rsi + rdx - 32]
         movups xmm3, xmmword ptr [rsi + rdx - 16]
         lea r8, [rdi + rdx - 32]
         5: movups xmm0, xmmword ptr [rsi]
         movups xmm1, xmmword ptr [rsi + 16]
         movups xmmword ptr [rdi], xmm0
         movups xmmword ptr [rdi + 16], xmm1
         add rsi, 32
         add rdi, 32
         cmp rdi, r8
         jb 5b
         movups xmmword ptr [r8], xmm2
         movups xmmword ptr [r8 + 16], xmm3
         ret"
    };
}

/// # Safety
/// As in C: `n` readable bytes at `src`, `n` writable ones at `dst`, no overlap.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    naked_asm!(short_move!(), "2:", forward!())
}

/// # Safety
/// As in C: `n` readable bytes at `src`, `n` writable ones at `dst`.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    naked_asm!(
        short_move!(),
        // Forwards unless `dst` lies in the `n` bytes above `src`.
        "2: mov rcx, rdi
         sub rcx, rsi
         cmp rcx, rdx
         jb 6f",
        forward!(),
        "6: movups xmm2, xmmword ptr [rsi]
         movups xmm3, xmmword ptr [rsi + 16]
         7: movups xmm0, xmmword ptr [rsi + rdx - 16]
         movups xmm1, xmmword ptr [rsi + rdx - 32]
         movups xmmword ptr [rdi + rdx - 16], xmm0
         movups xmmword ptr [rdi + rdx - 32], xmm1
         sub rdx, 32
         cmp rdx, 32
         ja 7b
         movups xmmword ptr [rdi], xmm2
         movups xmmword ptr [rdi + 16], xmm3
         ret"
    )
}

/// # Safety
/// As in C: `n` writable bytes at `dst`.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi
         movzx ecx, sil
         movabs r8, 0x0101010101010101
         imul rcx, r8
         cmp rdx, 16
         jae 2f
         cmp edx, 8
         jae 8f
         cmp edx, 4
         jae 4f
         test edx, edx
         je 3f
         mov byte ptr [rdi], cl
         mov byte ptr [rdi + rdx - 1], cl
         shr rdx
         mov byte ptr [rdi + rdx], cl
         3: ret
         4: mov dword ptr [rdi], ecx
         mov dword ptr [rdi + rdx - 4], ecx
         ret
         8: mov qword ptr [rdi], rcx
         mov qword ptr [rdi + rdx - 8], rcx
         ret
         2: movq xmm0, rcx
         punpcklqdq xmm0, xmm0
         lea r8, [rdi + rdx - 16]
         5: movups xmmword ptr [rdi], xmm0
         add rdi, 16
         cmp rdi, r8
         jb 5b
         movups xmmword ptr [r8], xmm0
         ret"
    )
}

/// Compares `rdx` bytes at `rdi` and `rsi`: eight per iteration, then the rest one by one.
macro_rules! compare {
    () => {
        "xor ecx, ecx
         sub rdx, 8
         jb 3f
         2: mov rax, qword ptr [rdi + rcx]
         mov r8, qword ptr [rsi + rcx]
         cmp rax, r8
         jne 8f
         add rcx, 8
         cmp rcx, rdx
         jbe 2b
         3: add rdx, 8
         4: cmp rcx, rdx
         jae 5f
         movzx eax, byte ptr [rdi + rcx]
         movzx r8d, byte ptr [rsi + rcx]
         inc rcx
         sub eax, r8d
         je 4b
         ret
         5: xor eax, eax
         ret
         8: bswap rax
         bswap r8
         cmp rax, r8
         sbb eax, eax
         or eax, 1
         ret"
    };
}

/// # Safety
/// As in C: `n` readable bytes at both.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> c_int {
    naked_asm!(compare!())
}

/// # Safety
/// As in C: `n` readable bytes at both.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> c_int {
    naked_asm!(compare!())
}

/// # Safety
/// As in C: a NUL ends the string.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn strlen(s: *const c_char) -> usize {
    naked_asm!(
        "mov rax, rdi
         2: cmp byte ptr [rax], 0
         je 3f
         inc rax
         jmp 2b
         3: sub rax, rdi
         ret"
    )
}
