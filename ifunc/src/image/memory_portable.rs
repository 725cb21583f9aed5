//! The memory functions that compilers emit calls to, for architectures without their own assembly version.
//!
//! The loops stand in the functions themselves: LLVM does not turn a loop into a call of the function that
//! contains it, but it does so in a helper.

use core::ffi::{c_char, c_int};

/// # Safety
/// As in C: `n` readable bytes at `src`, `n` writable ones at `dst`, no overlap.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    const WORD: usize = size_of::<usize>();
    let mut i = 0;
    if (dst.addr() | src.addr()).is_multiple_of(WORD) {
        while n - i >= WORD {
            // SAFETY: both are aligned, and `i + WORD <= n`.
            unsafe {
                dst.add(i)
                    .cast::<usize>()
                    .write(src.add(i).cast::<usize>().read())
            };
            i += WORD;
        }
    }
    while i < n {
        // SAFETY: `i < n`.
        unsafe { *dst.add(i) = *src.add(i) };
        i += 1;
    }
    dst
}

/// # Safety
/// As in C: `n` readable bytes at `src`, `n` writable ones at `dst`.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if dst.addr().wrapping_sub(src.addr()) >= n {
        let mut i = 0;
        while i < n {
            // SAFETY: `i < n`; every overwritten byte was read before.
            unsafe { *dst.add(i) = *src.add(i) };
            i += 1;
        }
    } else {
        let mut i = n;
        while i > 0 {
            i -= 1;
            // SAFETY: as above, from the end.
            unsafe { *dst.add(i) = *src.add(i) };
        }
    }
    dst
}

/// # Safety
/// As in C: `n` writable bytes at `dst`.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn memset(dst: *mut u8, byte: c_int, n: usize) -> *mut u8 {
    let mut i = 0;
    while i < n {
        // SAFETY: `i < n`.
        unsafe { *dst.add(i) = byte as u8 };
        i += 1;
    }
    dst
}

/// # Safety
/// As in C: `n` readable bytes at both.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> c_int {
    let mut i = 0;
    while i < n {
        // SAFETY: `i < n`.
        let (x, y) = unsafe { (*a.add(i), *b.add(i)) };
        if x != y {
            return c_int::from(x) - c_int::from(y);
        }
        i += 1;
    }
    0
}

/// # Safety
/// As in C: `n` readable bytes at both.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> c_int {
    let mut i = 0;
    while i < n {
        // SAFETY: `i < n`.
        if unsafe { *a.add(i) != *b.add(i) } {
            return 1;
        }
        i += 1;
    }
    0
}

/// # Safety
/// As in C: a NUL ends the string.
#[cfg_attr(ifunc_image, unsafe(no_mangle))]
pub(super) unsafe extern "C" fn strlen(s: *const c_char) -> usize {
    let mut len = 0;
    // SAFETY: everything before the NUL is readable.
    while unsafe { *s.add(len) } != 0 {
        len += 1;
    }
    len
}
