//! Messages: payloads that are made once and sent many times.

use std::ffi::c_void;
use std::time::Duration;

use ifunc_rt::{ByName, Message};

use crate::call::ifunc_call;
use crate::guard::{enter, enter_or};
use crate::handle::ifunc_handle;
use crate::status::ifunc_status;

/// A payload that is made once, may be changed in place, and is sent many times, to many targets. Any number of threads may send it at
/// once, while none changes it.
pub struct ifunc_message {
    message: Message<ByName>,
    /// How long its calls wait.
    timeout: Duration,
}

/// Makes a message for the ifunc of a handle. `args` as for `ifunc_handle_send`. `handle` and `message` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_create(
    handle: *const ifunc_handle,
    args: *const c_void,
    n: usize,
    message: *mut *mut ifunc_message,
) -> ifunc_status {
    enter(|| {
        let out = out!(message);
        let handle = object!(handle);
        let message = handle.handle.message(bytes!(args, n))?;
        Ok(out.set(ifunc_message {
            message,
            timeout: handle.timeout,
        }))
    })
}

/// Makes its payload anew, from other arguments. After an error it must be set again before it is sent. `message` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_set(
    message: *mut ifunc_message,
    args: *const c_void,
    n: usize,
) -> ifunc_status {
    enter(|| {
        object_mut!(message).message.set(bytes!(args, n))?;
        Ok(ifunc_status::Ok)
    })
}

/// The payload, to be changed in place; its address is valid until the message is set or destroyed. Null if `message` is null. `len` may be
/// null; otherwise it receives the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_payload(message: *mut ifunc_message, len: *mut usize) -> *mut c_void {
    enter_or(std::ptr::null_mut(), || {
        write_to!(len, 0);
        let payload = object_mut!(message).message.payload_mut();
        write_to!(len, payload.len());
        Ok(payload.as_mut_ptr().cast())
    })
}

/// Sends a message, as `ifunc_handle_send` does, by a handle of the same ifunc of any source. `handle` may be null: the one that the message
/// was made of. `message` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_send(
    message: *const ifunc_message,
    handle: *const ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let message = &object!(message).message;
        match object_or_null!(handle) {
            None => message.send()?,
            Some(handle) => message.to(&handle.handle)?.send()?,
        }
        Ok(ifunc_status::Ok)
    })
}

/// As `ifunc_message_send`, but never waits: IFUNC_STATUS_WOULD_BLOCK if there is no credit. `handle` may be null, `message` not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_try_send(
    message: *const ifunc_message,
    handle: *const ifunc_handle,
) -> ifunc_status {
    enter(|| {
        let message = &object!(message).message;
        match object_or_null!(handle) {
            None => message.try_send()?,
            Some(handle) => message.to(&handle.handle)?.try_send()?,
        }
        Ok(ifunc_status::Ok)
    })
}

/// Sends a message, as `ifunc_message_send` does, and makes a call to wait for. `message` and `call` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_call(
    message: *const ifunc_message,
    handle: *const ifunc_handle,
    call: *mut *mut ifunc_call,
) -> ifunc_status {
    enter(|| {
        let out = out!(call);
        let message = object!(message);
        let (call, timeout) = match object_or_null!(handle) {
            None => (message.message.call()?, message.timeout),
            Some(handle) => (message.message.to(&handle.handle)?.call()?, handle.timeout),
        };
        Ok(out.set(ifunc_call::new(call, timeout)))
    })
}

/// As `ifunc_message_call`, but never waits for credit: IFUNC_STATUS_WOULD_BLOCK if there is none. `handle` may be null, nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_try_call(
    message: *const ifunc_message,
    handle: *const ifunc_handle,
    call: *mut *mut ifunc_call,
) -> ifunc_status {
    enter(|| {
        let out = out!(call);
        let message = object!(message);
        let (call, timeout) = match object_or_null!(handle) {
            None => (message.message.try_call()?, message.timeout),
            Some(handle) => (message.message.to(&handle.handle)?.try_call()?, handle.timeout),
        };
        Ok(out.set(ifunc_call::new(call, timeout)))
    })
}

/// Frees a message. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_message_destroy(message: *mut ifunc_message) {
    destroy!(message);
}
