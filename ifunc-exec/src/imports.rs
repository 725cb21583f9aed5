//! The imports that every target provides: what the SDK calls, and what compilers call on their own.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::time::SystemTime;

use ifunc_abi::symbols;

use crate::allocations::{alloc_plain, dealloc_plain, realloc_plain};
use crate::answer;
use crate::arch;
use crate::gate::{escape_with_panic, escape_with_panic_at, on_host_side};
use crate::held;
use crate::services;

unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, n: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, n: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void;
    fn memcmp(a: *const c_void, b: *const c_void, n: usize) -> c_int;
    fn bcmp(a: *const c_void, b: *const c_void, n: usize) -> c_int;
    fn strlen(s: *const c_char) -> usize;
}

/// Name and address of every import that needs no permission.
pub(crate) fn runtime_imports() -> [(&'static str, *const ()); 22] {
    [
        (symbols::PANIC, arch::panic as *const ()),
        (symbols::ALLOC, alloc_plain as *const ()),
        (symbols::DEALLOC, dealloc_plain as *const ()),
        (symbols::REALLOC, realloc_plain as *const ()),
        (symbols::ANSWER, answer::answer as *const ()),
        (symbols::MAX_ANSWER, answer::max_answer as *const ()),
        (symbols::RELEASE, held::release as *const ()),
        (symbols::RANDOM, random as *const ()),
        (symbols::UNIX_TIME, unix_time as *const ()),
        (symbols::TRAVEL, services::travel as *const ()),
        (symbols::OUTGOING, services::outgoing as *const ()),
        (symbols::SEND, services::send as *const ()),
        (symbols::FORWARD, services::forward as *const ()),
        (symbols::REPLY, services::reply as *const ()),
        (symbols::NOW, services::clock as *const ()),
        ("memcpy", memcpy as *const ()),
        ("memmove", memmove as *const ()),
        ("memset", memset as *const ()),
        ("memcmp", memcmp as *const ()),
        ("bcmp", bcmp as *const ()),
        ("strlen", strlen as *const ()),
        ("__stack_chk_fail", stack_chk_fail as *const ()),
    ]
}

/// The value that guarded stack frames hold: random, once per process. Its first byte ends a string, so that no copy of a string
/// forges it.
pub(crate) fn stack_guard() -> *const c_void {
    static GUARD: OnceLock<usize> = OnceLock::new();
    let guard = GUARD.get_or_init(|| {
        let mut bytes = [0; size_of::<usize>()];
        // SAFETY: a local of this length. Without random bytes the guard is a constant.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        bytes[0] = 0;
        usize::from_ne_bytes(bytes)
    });
    std::ptr::from_ref(guard).cast()
}

/// The addresses of those that are functions of memory: they own nothing, and call nothing.
pub(crate) fn memory_functions() -> impl Iterator<Item = usize> {
    let names = ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"];
    let all = runtime_imports().into_iter();
    all.filter(move |(name, _)| names.contains(name))
        .map(|(_, address)| address.expose_provenance())
}

/// # Safety
/// `ptr` must be readable for `len` bytes, or `len` zero.
unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

/// `__ifunc_panic`, after the few instructions that add where on the stack it found its return address.
pub(crate) unsafe extern "C" fn panicked(
    message: *const u8,
    message_len: usize,
    file: *const u8,
    file_len: usize,
    line: u32,
    column: u32,
    stack: usize,
) -> ! {
    // SAFETY: the SDK's panic handler passes two strings; this frame and those of the image (panic=abort) own nothing, and
    // those of an unguarded host function that called it back bear to be left, by the contract of `Policy::accept_unsigned`.
    unsafe {
        let (message, file) = (bytes(message, message_len), bytes(file, file_len));
        escape_with_panic_at(stack, message, file, line, column)
    }
}

extern "C" fn stack_chk_fail() -> ! {
    // SAFETY: called by compiled C, whose frames own nothing; those of a function of the host that called it back bear
    // to be left, by the contract of `Policy::accept_unsigned`. The way out does not use the smashed stack.
    unsafe { escape_with_panic(b"stack smashing detected", b"", 0, 0) }
}

/// `abort` of the C library, where a host allows it: it ends the invocation, not the target.
pub(crate) extern "C" fn abort() -> ! {
    // SAFETY: as in `stack_chk_fail`; a function of the C library that called back (`qsort`) loses at most memory, which
    // is what the C standard allows for leaving it by `longjmp`.
    unsafe { escape_with_panic(b"abort() was called", b"", 0, 0) }
}

/// What a failed `assert` calls, in the same way.
///
/// # Safety
/// The three texts must end in a zero byte, or be null.
pub(crate) unsafe extern "C" fn assert_fail(
    assertion: *const c_char,
    file: *const c_char,
    line: u32,
    function: *const c_char,
) -> ! {
    // SAFETY: the caller's promise: `assert` passes literals.
    let text = |text: *const c_char| unsafe {
        if text.is_null() {
            return &b"?"[..];
        }
        CStr::from_ptr(text).to_bytes()
    };
    // On the stack: nothing is dropped when the invocation ends.
    let mut message = [0_u8; 512];
    let mut rest = &mut message[..];
    for part in [
        b"assertion `",
        text(assertion),
        b"` failed in `",
        text(function),
        b"`",
    ] {
        let len = part.len().min(rest.len());
        rest[..len].copy_from_slice(&part[..len]);
        rest = &mut rest[len..];
    }
    let len = 512 - rest.len();
    // SAFETY: as in `abort`.
    unsafe { escape_with_panic(&message[..len], text(file), line, 0) }
}

/// # Safety
/// `out` must be valid for writes of `len` bytes, or `len` zero.
unsafe extern "C" fn random(out: *mut u8, len: usize) -> u32 {
    on_host_side(|| {
        let mut at = 0;
        while at < len {
            // SAFETY: the caller's promise.
            let written = unsafe { libc::getrandom(out.add(at).cast(), len - at, 0) };
            match usize::try_from(written) {
                Ok(written) => at += written,
                // A signal came before the first byte.
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return 1,
            }
        }
        0
    })
}

extern "C" fn unix_time() -> u64 {
    on_host_side(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provides_what_the_abi_promises() {
        let mut names: Vec<_> = runtime_imports().iter().map(|(name, _)| *name).collect();
        names.push(symbols::STACK_GUARD);
        for promised in symbols::RUNTIME_IMPORTS.iter().chain(&symbols::COMPILER_IMPORTS) {
            assert!(names.contains(promised), "{promised}");
        }
    }

    #[test]
    fn the_guard_of_stack_frames_is_one_value_and_ends_a_string() {
        assert_eq!(stack_guard(), stack_guard());
        // SAFETY: a static of this type.
        let guard = unsafe { *stack_guard().cast::<usize>() };
        assert_eq!(guard.to_ne_bytes()[0], 0);
        assert_ne!(guard, 0);
    }

    #[test]
    fn random_bytes_are_written_to_the_last() {
        let mut bytes = [0; 1000];
        // SAFETY: a local of this length.
        assert_eq!(unsafe { random(bytes.as_mut_ptr(), bytes.len()) }, 0);
        assert!(bytes.chunks(50).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
        // SAFETY: no byte is written.
        assert_eq!(unsafe { random(std::ptr::null_mut(), 0) }, 0);
        assert!(unix_time() > 1_700_000_000_000_000_000);
    }
}
