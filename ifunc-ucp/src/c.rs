//! The functions of the interface, as the headers in `include/ifunc/compat` declare them. No panic leaves them.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;

use ucx_sys::{
    UCS_ERR_CANCELED, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR, UCS_ERR_NO_ELEM, UCS_ERR_NO_MESSAGE,
    UCS_ERR_NO_RESOURCE, UCS_ERR_UNSUPPORTED, UCS_OK, Ucx, ucp_config_t, ucp_context_h, ucp_ep_h, ucp_rkey_h,
    ucp_worker_h, ucs_status_t,
};

use crate::poll::{Polled, poll};
use crate::registry::{self, Code, Handle};
use crate::slot::Slot;
use crate::{message, report};

/// `ucp_ifunc_h`.
#[allow(non_camel_case_types, reason = "the name in C")]
pub type ucp_ifunc_h = *mut c_void;

/// `ucp_ifunc_msg_t`.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ucp_ifunc_msg_t {
    /// What it was made of.
    pub ifunc_h: ucp_ifunc_h,
    /// The frame.
    pub frame: *mut c_void,
    /// Its length.
    pub frame_size: usize,
}

/// `ucp_ifunc_reg_param_t` of the slides.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ucp_ifunc_reg_param_slides_t {
    /// The name.
    pub name: *mut c_char,
    /// Not used.
    pub pure_code: c_int,
}

/// `ucp_ifunc_reg_param_t` of Three-Chains.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ucp_ifunc_reg_param_threechains_t {
    /// The name.
    pub name: *mut c_char,
    /// Not used.
    pub pure_code: c_int,
    /// Not used.
    pub llvm_bc: c_int,
}

/// `ucp_llvm_bc_t`.
#[allow(non_camel_case_types, reason = "the name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ucp_llvm_bc_t {
    /// The machine that it is for.
    pub triple: *mut c_char,
    /// The code.
    pub bc: *mut c_void,
    /// Its length.
    pub size: u32,
}

/// What images may import of this interface: all that an ifunc may call in its `NAME_main`.
pub(crate) fn importable() -> impl Iterator<Item = (&'static str, *const c_void)> {
    let functions: [(&str, *const ()); 14] = [
        ("ucp_ifunc_send_nbix", ucp_ifunc_send_nbix as *const ()),
        ("ucp_ifunc_msg_send_nbix", ucp_ifunc_msg_send_nbix as *const ()),
        (
            "ucp_ifunc_msg_get_payload_ptr",
            ucp_ifunc_msg_get_payload_ptr as *const (),
        ),
        ("ucp_ifunc_msg_create", ucp_ifunc_msg_create as *const ()),
        ("ucp_ifunc_msg_free", ucp_ifunc_msg_free as *const ()),
        ("ucp_deregister_ifunc", ucp_deregister_ifunc as *const ()),
        ("ucp_register_ifunc_paper", ucp_register_ifunc_paper as *const ()),
        (
            "ucp_register_ifunc_slides",
            ucp_register_ifunc_slides as *const (),
        ),
        (
            "ucp_register_ifunc_threechains",
            ucp_register_ifunc_threechains as *const (),
        ),
        (
            "ucp_register_ifunc_im_threechains",
            ucp_register_ifunc_im_threechains as *const (),
        ),
        ("ucp_poll_ifunc_paper", ucp_poll_ifunc_paper as *const ()),
        ("ucp_poll_ifunc_slides", ucp_poll_ifunc_slides as *const ()),
        (
            "ucp_poll_ifunc_threechains",
            ucp_poll_ifunc_threechains as *const (),
        ),
        ("ucp_ifunc_set_lib_dir", ucp_ifunc_set_lib_dir as *const ()),
    ];
    functions
        .into_iter()
        .map(|(name, address)| (name, address.cast()))
}

/// Calls `with`. A panic in it is an error of this crate: the application gets a status.
#[inline]
fn without_panic(otherwise: ucs_status_t, with: impl FnOnce() -> ucs_status_t) -> ucs_status_t {
    catch_unwind(AssertUnwindSafe(with)).unwrap_or(otherwise)
}

/// The string at `text`. `None`: null, or not UTF-8.
///
/// # Safety
/// `text` is null or ends in a zero byte.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    (!text.is_null())
        .then(|| unsafe { CStr::from_ptr(text) })?
        .to_str()
        .ok()
}

/// The elements at `at`. `None`: null, or a negative number.
///
/// # Safety
/// `at` is null or the address of `n` elements.
unsafe fn elements<'a, T>(at: *const T, n: c_int) -> Option<&'a [T]> {
    match usize::try_from(n) {
        Ok(0) => Some(&[]),
        // SAFETY: the caller's promise.
        Ok(n) if !at.is_null() => Some(unsafe { slice::from_raw_parts(at, n) }),
        _ => None,
    }
}

/// Writes the handle, or null.
///
/// # Safety
/// `ifunc_p` is writable.
unsafe fn registered(ifunc_p: *mut ucp_ifunc_h, handle: Result<Handle, ucs_status_t>) -> ucs_status_t {
    let (pointer, status) = match handle {
        Ok(handle) => (handle.to_pointer(), UCS_OK),
        Err(status) => (ptr::null_mut(), status),
    };
    // SAFETY: the caller's promise.
    unsafe { ifunc_p.write(pointer) };
    status
}

/// Registers by name. A null pointer is [`UCS_ERR_INVALID_PARAM`].
///
/// # Safety
/// As [`ucp_register_ifunc_paper`].
unsafe fn register(context: ucp_context_h, name: *const c_char, ifunc_p: *mut ucp_ifunc_h) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        // SAFETY: the caller's promise.
        let name = unsafe { string(name) };
        let (Some(name), false) = (name, context.is_null() || ifunc_p.is_null()) else {
            return UCS_ERR_INVALID_PARAM;
        };
        // SAFETY: the caller's promise.
        unsafe { registered(ifunc_p, registry::register_by_name(context.addr(), name)) }
    })
}

/// Registers the ifunc of that name.
///
/// # Safety
/// The name ends in a zero byte, and `ifunc_p` is writable; or they are null. The library that is found is trusted with this
/// process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_register_ifunc_paper(
    context: ucp_context_h,
    ifunc_name: *const c_char,
    ifunc_p: *mut ucp_ifunc_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { register(context, ifunc_name, ifunc_p) }
}

/// Registers the ifunc of that name.
///
/// # Safety
/// As [`ucp_register_ifunc_paper`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_register_ifunc_slides(
    context: ucp_context_h,
    param: ucp_ifunc_reg_param_slides_t,
    ifunc_p: *mut ucp_ifunc_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { register(context, param.name, ifunc_p) }
}

/// Registers the ifunc of that name.
///
/// # Safety
/// As [`ucp_register_ifunc_paper`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_register_ifunc_threechains(
    context: ucp_context_h,
    param: ucp_ifunc_reg_param_threechains_t,
    ifunc_p: *mut ucp_ifunc_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { register(context, param.name, ifunc_p) }
}

/// Registers code in memory.
///
/// # Safety
/// As [`ucp_register_ifunc_paper`]; `bcs` are `n_bcs` descriptions of readable code, and `deps` are `n_deps` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_register_ifunc_im_threechains(
    context: ucp_context_h,
    param: ucp_ifunc_reg_param_threechains_t,
    bcs: *mut ucp_llvm_bc_t,
    n_bcs: c_int,
    deps: *mut *mut c_char,
    n_deps: c_int,
    ifunc_p: *mut ucp_ifunc_h,
) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        // SAFETY: the caller's promise.
        let arguments = unsafe { (string(param.name), elements(bcs, n_bcs), elements(deps, n_deps)) };
        let (Some(name), Some(bcs), Some(deps)) = arguments else {
            return UCS_ERR_INVALID_PARAM;
        };
        if context.is_null() || ifunc_p.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        let code = bcs.iter().map(|code| {
            // SAFETY: the caller's promise.
            let triple = unsafe { string(code.triple) }?;
            let bytes = code.bc.cast::<u8>().cast_const();
            let len = code.size as usize;
            // SAFETY: as above.
            (!bytes.is_null())
                .then(|| unsafe { slice::from_raw_parts(bytes, len) })
                .map(|bytes| Code { triple, bytes })
        });
        // SAFETY: as above.
        let libraries = deps.iter().map(|dep| unsafe { string(*dep) });
        let (Some(code), Some(libraries)) = (
            code.collect::<Option<Vec<_>>>(),
            libraries.collect::<Option<Vec<_>>>(),
        ) else {
            return UCS_ERR_INVALID_PARAM;
        };
        // SAFETY: as above.
        unsafe {
            let handle = registry::register_in_memory(context.addr(), name, &code, &libraries);
            registered(ifunc_p, handle)
        }
    })
}

/// Forgets a registration.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_deregister_ifunc(context: ucp_context_h, ifunc_h: ucp_ifunc_h) {
    without_panic(UCS_OK, || {
        if let Some(handle) = Handle::from_pointer(ifunc_h) {
            registry::deregister(context.addr(), handle);
        }
        UCS_OK
    });
}

/// Makes a message.
///
/// # Safety
/// The source arguments are what the ifunc's author expects; `msg_p` is writable or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_msg_create(
    ifunc_h: ucp_ifunc_h,
    source_args: *mut c_void,
    source_args_size: usize,
    msg_p: *mut ucp_ifunc_msg_t,
) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        if ifunc_h.is_null() || msg_p.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        let Some(ifunc) = Handle::from_pointer(ifunc_h).and_then(registry::find) else {
            report::error(format_args!(
                "a message was to be made of an ifunc that is not registered"
            ));
            return UCS_ERR_NO_ELEM;
        };
        // SAFETY: the caller's promise.
        match unsafe { message::create(&ifunc, source_args, source_args_size) } {
            Ok((frame, frame_size)) => {
                let msg = ucp_ifunc_msg_t {
                    ifunc_h,
                    frame: frame.cast(),
                    frame_size,
                };
                // SAFETY: as above.
                unsafe { msg_p.write(msg) };
                UCS_OK
            }
            Err(status) => status,
        }
    })
}

/// Frees a message.
///
/// # Safety
/// Its frame is null, or was made by [`ucp_ifunc_msg_create`] and not freed yet. UCX does not read it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_msg_free(msg: ucp_ifunc_msg_t) {
    if !msg.frame.is_null() {
        // SAFETY: the caller's promise.
        unsafe { message::free(msg.frame.cast()) };
    }
}

/// The payload of a message.
///
/// # Safety
/// `msg` is null or a message that was not freed; `payload` is writable or null, `size`, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_msg_get_payload_ptr(
    msg: *mut ucp_ifunc_msg_t,
    payload: *mut *mut c_void,
    size: *mut usize,
) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        if msg.is_null() || payload.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        // SAFETY: the caller's promise.
        let opened = unsafe {
            let ucp_ifunc_msg_t {
                frame, frame_size, ..
            } = msg.read();
            message::open(frame.cast(), frame_size)
        };
        let Some((head, slot)) = opened else {
            return UCS_ERR_INVALID_PARAM;
        };
        // SAFETY: the caller's promise.
        unsafe {
            payload.write(slot.address(head.layout.payload_at).cast());
            if !size.is_null() {
                size.write(head.layout.payload_len);
            }
        }
        UCS_OK
    })
}

/// Sends a message.
///
/// # Safety
/// It was not freed; `ep`, `remote_addr` and `rkey` are what `ucp_put_nbi` takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_send_nbix(
    ep: ucp_ep_h,
    msg: ucp_ifunc_msg_t,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        if ep.is_null() || rkey.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        // SAFETY: the caller's promise.
        unsafe { message::send(ep, msg.frame.cast(), msg.frame_size, remote_addr, rkey) }
    })
}

/// Sends a message.
///
/// # Safety
/// As [`ucp_ifunc_send_nbix`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_msg_send_nbix(
    ep: ucp_ep_h,
    msg: ucp_ifunc_msg_t,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { ucp_ifunc_send_nbix(ep, msg, remote_addr, rkey) }
}

/// Polls. A null pointer is [`UCS_ERR_INVALID_PARAM`].
///
/// # Safety
/// As [`ucp_poll_ifunc_paper`].
#[inline]
unsafe fn polled(
    context: ucp_context_h,
    buffer: *mut c_void,
    size: usize,
    target_args: *mut c_void,
) -> ucs_status_t {
    if context.is_null() || buffer.is_null() {
        return UCS_ERR_INVALID_PARAM;
    }
    // SAFETY: the caller's promise.
    match unsafe { poll(Slot::new(buffer.cast(), size), target_args) } {
        Polled::Ran => UCS_OK,
        Polled::Nothing => UCS_ERR_NO_MESSAGE,
        Polled::Canceled => UCS_ERR_CANCELED,
        Polled::Unsupported => UCS_ERR_UNSUPPORTED,
        Polled::NoResource => UCS_ERR_NO_RESOURCE,
    }
}

/// Code of another machine is any other message that does not run, to programs that know three statuses.
fn of_three(status: ucs_status_t) -> ucs_status_t {
    match status {
        UCS_ERR_UNSUPPORTED => UCS_ERR_CANCELED,
        status => status,
    }
}

/// Runs the message in the buffer.
///
/// # Safety
/// The buffer is readable and writable for `buffer_size` bytes. **Every peer that can write to it is trusted with this process**: the code in it
/// runs with all its rights. `target_args` are what that code takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_poll_ifunc_paper(
    context: ucp_context_h,
    buffer: *mut c_void,
    buffer_size: usize,
    target_args: *mut c_void,
) -> ucs_status_t {
    without_panic(UCS_ERR_CANCELED, || {
        // SAFETY: the caller's promise.
        of_three(unsafe { polled(context, buffer, buffer_size, target_args) })
    })
}

/// Runs the message in the buffer.
///
/// # Safety
/// As [`ucp_poll_ifunc_paper`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_poll_ifunc_slides(
    context: ucp_context_h,
    buffer: *mut c_void,
    buffer_size: usize,
    target_args: *mut c_void,
) -> ucs_status_t {
    // SAFETY: the caller's promise.
    unsafe { ucp_poll_ifunc_paper(context, buffer, buffer_size, target_args) }
}

/// Runs the message in the buffer. If there is none, the worker makes progress, and the buffer is read again.
///
/// # Safety
/// As [`ucp_poll_ifunc_paper`]. The worker is null, or one that this thread may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_poll_ifunc_threechains(
    context: ucp_context_h,
    buffer: *mut c_void,
    buffer_size: usize,
    target_args: *mut c_void,
    worker: ucp_worker_h,
) -> ucs_status_t {
    without_panic(UCS_ERR_CANCELED, || {
        // SAFETY: the caller's promise.
        let status = unsafe { polled(context, buffer, buffer_size, target_args) };
        if status != UCS_ERR_NO_MESSAGE || worker.is_null() {
            return status;
        }
        let Ok(ucx) = Ucx::load() else {
            return status;
        };
        // SAFETY: as above.
        unsafe {
            ucx.ucp_worker_progress(worker);
            polled(context, buffer, buffer_size, target_args)
        }
    })
}

/// A context was made.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_ifunc_context_made(context: ucp_context_h, config: *const ucp_config_t) {
    without_panic(UCS_OK, || {
        registry::context_made(context.addr(), config.addr());
        UCS_OK
    });
}

/// A context ends.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_ifunc_context_ends(context: ucp_context_h) {
    without_panic(UCS_OK, || {
        registry::context_ends(context.addr());
        UCS_OK
    });
}

/// Contexts with this configuration search for libraries in this folder.
///
/// # Safety
/// The folder ends in a zero byte, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ifunc_set_lib_dir(
    config: *const ucp_config_t,
    folder: *const c_char,
) -> ucs_status_t {
    without_panic(UCS_ERR_IO_ERROR, || {
        if config.is_null() || folder.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        // SAFETY: the caller's promise.
        let folder = OsStr::from_bytes(unsafe { CStr::from_ptr(folder) }.to_bytes());
        registry::configure(config.addr(), folder.to_owned());
        UCS_OK
    })
}

/// A configuration ends.
#[unsafe(no_mangle)]
pub extern "C" fn ucp_ifunc_config_ends(config: *const ucp_config_t) {
    without_panic(UCS_OK, || {
        registry::config_ends(config.addr());
        UCS_OK
    });
}
