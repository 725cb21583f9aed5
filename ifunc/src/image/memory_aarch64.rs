//! The memory functions that compilers emit calls to, for AArch64.
//!
//! As those of x86-64 they are in assembly, load blocks of at most 32 bytes whole, by overlapping loads, before they store them, and move 32
//! bytes per iteration of longer ones.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

/// Moves `x2` <= 32 bytes from `x1` to `x0` and returns; longer blocks continue at label 2, with their ends in `x4` and `x5`. The ranges may
/// overlap.
macro_rules! short_move {
    () => {
        "add x4, x1, x2
         add x5, x0, x2
         cmp x2, #32
         b.hi 2f
         cmp x2, #16
         b.hs 16f
         tbnz x2, #3, 8f
         tbnz x2, #2, 4f
         cbz x2, 3f
         lsr x3, x2, #1
         ldrb w6, [x1]
         ldrb w7, [x1, x3]
         ldurb w8, [x4, #-1]
         strb w6, [x0]
         strb w7, [x0, x3]
         sturb w8, [x5, #-1]
         3: ret
         4: ldr w6, [x1]
         ldur w7, [x4, #-4]
         str w6, [x0]
         stur w7, [x5, #-4]
         ret
         8: ldr x6, [x1]
         ldur x7, [x4, #-8]
         str x6, [x0]
         stur x7, [x5, #-8]
         ret
         16: ldr q0, [x1]
         ldur q1, [x4, #-16]
         str q0, [x0]
         stur q1, [x5, #-16]
         ret"
    };
}

/// Moves more than 32 bytes forwards. The last 32 bytes are loaded first, so `x0` may overlap `x1` from below.
macro_rules! forward {
    () => {
        "ldp q2, q3, [x4, #-32]
         sub x5, x5, #32
         mov x3, x0
         5: ldp q0, q1, [x1], #32
         stp q0, q1, [x3], #32
         cmp x3, x5
         b.lo 5b
         stp q2, q3, [x5]
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
        "2: sub x3, x0, x1
         cmp x3, x2
         b.lo 6f",
        forward!(),
        "6: ldp q2, q3, [x1]
         7: ldp q0, q1, [x4, #-32]!
         stp q0, q1, [x5, #-32]!
         sub x2, x2, #32
         cmp x2, #32
         b.hi 7b
         stp q2, q3, [x0]
         ret"
    )
}

/// # Safety
/// As in C: `n` writable bytes at `dst`.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    naked_asm!(
        "add x5, x0, x2
         dup v0.16b, w1
         cmp x2, #32
         b.hi 6f
         cmp x2, #16
         b.hs 16f
         tbnz x2, #3, 8f
         tbnz x2, #2, 4f
         cbz x2, 3f
         lsr x3, x2, #1
         strb w1, [x0]
         strb w1, [x0, x3]
         sturb w1, [x5, #-1]
         3: ret
         4: str s0, [x0]
         stur s0, [x5, #-4]
         ret
         8: str d0, [x0]
         stur d0, [x5, #-8]
         ret
         16: str q0, [x0]
         stur q0, [x5, #-16]
         ret
         6: sub x5, x5, #32
         mov x3, x0
         5: stp q0, q0, [x3], #32
         cmp x3, x5
         b.lo 5b
         stp q0, q0, [x5]
         ret"
    )
}

/// Compares `x2` bytes at `x0` and `x1`: eight per iteration, then the rest one by one.
macro_rules! compare {
    () => {
        "subs x2, x2, #8
         b.lo 3f
         2: ldr x3, [x0], #8
         ldr x4, [x1], #8
         cmp x3, x4
         b.ne 8f
         subs x2, x2, #8
         b.hs 2b
         3: adds x2, x2, #8
         b.eq 5f
         4: ldrb w3, [x0], #1
         ldrb w4, [x1], #1
         subs w3, w3, w4
         b.ne 6f
         subs x2, x2, #1
         b.ne 4b
         5: mov w0, wzr
         ret
         6: mov w0, w3
         ret
         8: rev x3, x3
         rev x4, x4
         cmp x3, x4
         cset w0, hi
         csinv w0, w0, wzr, hs
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
        "mov x1, x0
         2: ldrb w2, [x1], #1
         cbnz w2, 2b
         mvn x0, x0
         add x0, x0, x1
         ret"
    )
}
