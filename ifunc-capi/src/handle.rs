//! Handles of ifuncs: send and call.

use std::ffi::{CString, c_char, c_void};
use std::time::Duration;

use ifunc_rt::{ByName, Handle};

use crate::call::ifunc_call;
use crate::guard::{Fault, c_string, duration, enter, enter_or};
use crate::status::ifunc_status;
use crate::stream::ifunc_stream;

/// An ifunc on a connection: sends payloads and receives answers. Any number of threads may use it at once.
pub struct ifunc_handle {
    pub(crate) handle: Handle<ByName>,
    name: CString,
    /// How long its calls wait.
    pub(crate) timeout: Duration,
}

impl ifunc_handle {
    pub(crate) fn new(handle: Handle<ByName>, timeout: Duration) -> Self {
        let name = c_string(handle.name());
        Self {
            handle,
            name,
            timeout,
        }
    }
}

/// Releases a handle. Its messages and calls may outlive it. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_destroy(handle: *mut ifunc_handle) {
    destroy!(handle);
}

/// The ifunc's name, valid as long as the handle; null if `handle` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_name(handle: *const ifunc_handle) -> *const c_char {
    enter_or(std::ptr::null(), || Ok(object!(handle).name.as_ptr()))
}

/// BLAKE3 of the image: 32 bytes, valid as long as the handle; null if `handle` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_id(handle: *const ifunc_handle) -> *const u8 {
    enter_or(std::ptr::null(), || Ok(object!(handle).handle.id().as_ptr()))
}

/// The image, the bytes that travel once per connection, valid as long as the handle; null if `handle` is null. `len` may be null;
/// otherwise it receives their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_image(handle: *const ifunc_handle, len: *mut usize) -> *const c_void {
    enter_or(std::ptr::null(), || {
        write_to!(len, 0);
        let image = object!(handle).handle.image();
        write_to!(len, image.len());
        Ok(image.as_ptr().cast())
    })
}

/// Makes another handle of the same ifunc, whose sends and calls wait at most `ns` nanoseconds. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_with_timeout(
    handle: *const ifunc_handle,
    ns: u64,
    other: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(other);
        let (handle, timeout) = (object!(handle), duration(ns));
        Ok(out.set(ifunc_handle::new(handle.handle.with_timeout(timeout), timeout)))
    })
}

/// Makes another handle of the same ifunc, whose invocations travel in batches: see `ifunc_source_options_set_aggregation`. Nothing may
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_aggregated(
    handle: *const ifunc_handle,
    other: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(other);
        let handle = object!(handle);
        Ok(out.set(ifunc_handle::new(handle.handle.aggregated(), handle.timeout)))
    })
}

/// Makes another handle of the same ifunc, whose invocations may go on from node to node of a group so often. Default 16384. Nothing may
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_with_hop_limit(
    handle: *const ifunc_handle,
    hops: u16,
    other: *mut *mut ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let out = out!(other);
        let handle = object!(handle);
        Ok(out.set(ifunc_handle::new(
            handle.handle.with_hop_limit(hops),
            handle.timeout,
        )))
    })
}

/// Sends without waiting for an outcome; waits for credit only. If it fails, `ifunc_source_flush` or a later send returns the error
/// (IFUNC_STATUS_EARLIER): over shared memory, one of the 16 sends after the target's report has arrived. `args` are the arguments of
/// `payload_init`, which gets pointer and number as they are, or the payload itself (`ifunc_source_load_bytes`); null if `n` is 0. `handle`
/// must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_send(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
) -> ifunc_status {
    enter(|| {
        object!(handle).handle.send(bytes!(args, n))?;
        Ok(ifunc_status::Ok)
    })
}

/// As `ifunc_handle_send`, but never waits: IFUNC_STATUS_WOULD_BLOCK if there is no credit. `args` may be null, `handle` not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_try_send(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
) -> ifunc_status {
    enter(|| {
        object!(handle).handle.try_send(bytes!(args, n))?;
        Ok(ifunc_status::Ok)
    })
}

/// Sends, and makes a call to wait for. `args` as for `ifunc_handle_send`. `handle` and `call` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_call(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    call: *mut *mut ifunc_call,
) -> ifunc_status {
    enter(|| {
        let out = out!(call);
        let handle = object!(handle);
        let call = handle.handle.call(bytes!(args, n))?;
        Ok(out.set(ifunc_call::new(call, handle.timeout)))
    })
}

/// As `ifunc_handle_call`, but never waits for credit: IFUNC_STATUS_WOULD_BLOCK if there is none. `args` may be null, nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_try_call(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    call: *mut *mut ifunc_call,
) -> ifunc_status {
    enter(|| {
        let out = out!(call);
        let handle = object!(handle);
        let call = handle.handle.try_call(bytes!(args, n))?;
        Ok(out.set(ifunc_call::new(call, handle.timeout)))
    })
}

/// Sends, waits for the answer at most the handle's timeout, and writes it to `answer`. `answer_len` receives its whole length, and may be
/// null. If it is longer than `capacity`, the beginning is written: IFUNC_STATUS_TRUNCATED. `args` as for `ifunc_handle_send`; `answer` may
/// be null if `capacity` is 0; `handle` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_call_wait(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    answer: *mut c_void,
    capacity: usize,
    answer_len: *mut usize,
) -> ifunc_status {
    enter(|| {
        write_to!(answer_len, 0);
        let call = object!(handle).handle.call(bytes!(args, n))?;
        call.wait_with(|bytes| {
            write_to!(answer_len, bytes.len());
            give(bytes, answer, capacity)
        })?
    })
}

/// Calls an ifunc that answers in parts. `args` as for `ifunc_handle_send`. `handle` and `stream` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_handle_stream(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    stream: *mut *mut ifunc_stream,
) -> ifunc_status {
    enter(|| {
        let out = out!(stream);
        let stream = object!(handle).handle.call_stream(bytes!(args, n))?;
        Ok(out.set(ifunc_stream::new(stream)))
    })
}

/// Writes an answer to the caller's memory of `capacity` bytes, as much of it as there is room for.
pub(crate) fn give(bytes: &[u8], answer: *mut c_void, capacity: usize) -> Result<ifunc_status, Fault> {
    let room = if answer.is_null() { 0 } else { capacity };
    let len = bytes.len().min(room);
    if len > 0 {
        // SAFETY: callers in C pass memory of `capacity` bytes, which is not ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), answer.cast(), len) };
    }
    if len < bytes.len() {
        return Err(Fault::new(
            ifunc_status::Truncated,
            format!(
                "the answer has {} bytes, and there is room for {room}",
                bytes.len()
            ),
        ));
    }
    Ok(ifunc_status::Ok)
}
