//! What the attributes' output calls. Not for people: it changes without notice.

use core::ffi::{c_int, c_void};

pub use ifunc_abi::context::{Context as RawContext, MAIN_BAD_ANSWER, MAIN_BAD_PAYLOAD, MAIN_OK};
#[cfg(not(ifunc_image))]
pub use linkme;

use crate::context::Context;
use crate::payload::{Answer, EncodeError};

/// Views arguments or a payload from C.
///
/// # Safety
/// `data` is null or `len` bytes that nobody writes for `'a`.
#[inline]
#[must_use]
pub unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}

/// Ends an `X_main` whose ifunc returned a value.
#[inline]
pub fn finish<C, A: Answer<C>>(ctx: &mut Context<'_>, answer: &A) -> u32 {
    let mut result = MAIN_OK;
    ctx.answer_with(|space| match answer.encode(space) {
        Ok(len) => len,
        Err(_) => {
            result = MAIN_BAD_ANSWER;
            space.len() + 1
        }
    });
    result
}

/// Ends an `X_main` whose ifunc returned nothing and may have answered through the context.
#[inline]
#[must_use]
pub fn finish_by_context(ctx: &Context<'_>) -> u32 {
    if ctx.overflowed() {
        MAIN_BAD_ANSWER
    } else {
        MAIN_OK
    }
}

/// `X_payload_init`: `encode` writes, `check` decodes what was written. 0, or 1 if either failed.
///
/// # Safety
/// `payload` is null or `*size` initialised bytes that nobody else uses; `size` is valid for reads and writes.
#[inline]
pub unsafe fn init(
    payload: *mut c_void,
    size: *mut usize,
    encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    check: impl FnOnce(&[u8]) -> bool,
) -> c_int {
    // SAFETY: the caller's promise.
    let capacity = unsafe { *size };
    let out: &mut [u8] = if payload.is_null() {
        &mut []
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(payload.cast(), capacity) }
    };
    match encode(out) {
        Ok(len) if out.get(..len).is_some_and(check) => {
            // SAFETY: the caller's promise.
            unsafe { *size = len };
            0
        }
        _ => 1,
    }
}

/// Length of [`concat`]'s result.
#[must_use]
pub const fn total(parts: &[&str]) -> usize {
    let mut len = 0;
    let mut i = 0;
    while i < parts.len() {
        len += parts[i].len();
        i += 1;
    }
    len
}

/// `parts`, one behind the other, as bytes.
#[must_use]
pub const fn concat<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    let mut i = 0;
    while i < parts.len() {
        let part = parts[i].as_bytes();
        let mut j = 0;
        while j < part.len() {
            out[at] = part[j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    out
}

/// Text of the answer of an ifunc that answers through its context.
pub const RAW_BYTES: ifunc_abi::text::Text = ifunc_abi::text::Text::new().str("raw bytes");
