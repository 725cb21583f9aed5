//! What every function of the interface does at its border: checks pointers, keeps panics, records errors.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::record;
use crate::status::ifunc_status;

/// Why a function of the interface fails.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) status: ifunc_status,
    /// An `ifunc_failure`, an `ifunc_rejection`, or what `payload_init` returned; 0: none.
    pub(crate) reason: u32,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(status: ifunc_status, text: impl Into<String>) -> Self {
        Self {
            status,
            reason: 0,
            text: text.into(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ifunc_status::InvalidArgument, text)
    }

    fn null(argument: &str) -> Self {
        Self::new(
            ifunc_status::NullArgument,
            format!("`{argument}` is a null pointer"),
        )
    }
}

/// Runs the body of a function that returns a status.
#[inline]
pub(crate) fn enter(body: impl FnOnce() -> Result<ifunc_status, Fault>) -> ifunc_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(fault)) => record(fault),
        Err(panic) => record(panicked(&*panic)),
    }
}

/// Runs the body of a function that returns a value, or `otherwise` if it fails.
#[inline]
pub(crate) fn enter_or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Fault>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(fault)) => {
            record(fault);
            otherwise
        }
        Err(panic) => {
            record(panicked(&*panic));
            otherwise
        }
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Fault {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "(no message)",
    };
    Fault::new(ifunc_status::Internal, format!("the runtime panicked: {text}"))
}

/// The object behind a pointer argument.
///
/// # Safety
/// The pointer is null or points to a live object, which nothing else changes during the call.
#[inline]
pub(crate) unsafe fn object<'a, T>(pointer: *const T, argument: &str) -> Result<&'a T, Fault> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Fault::null(argument))
}

/// The object behind a pointer argument, to be changed.
///
/// # Safety
/// The pointer is null or points to a live object, which nothing else uses during the call.
#[inline]
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, argument: &str) -> Result<&'a mut T, Fault> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Fault::null(argument))
}

/// The bytes behind a pointer argument; null stands for none if there are 0.
///
/// # Safety
/// The pointer is null or points to `len` bytes, which nothing else writes during the call.
#[inline]
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_void,
    len: usize,
    argument: &str,
) -> Result<&'a [u8], Fault> {
    if pointer.is_null() {
        return match len {
            0 => Ok(&[]),
            _ => Err(Fault::null(argument)),
        };
    }
    if isize::try_from(len).is_err() {
        return Err(Fault::invalid(format!("`{argument}` has no {len} bytes")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// The string behind a pointer argument.
///
/// # Safety
/// The pointer is null or points to a string that ends with a zero.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    unsafe { text_or_null(pointer, argument) }?.ok_or_else(|| Fault::null(argument))
}

/// The string behind a pointer argument that may be null.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn text_or_null<'a>(
    pointer: *const c_char,
    argument: &str,
) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some)
        .map_err(|_| Fault::invalid(format!("`{argument}` is not UTF-8")))
}

/// Where a function puts the object that it makes.
pub(crate) struct Out<'a, T>(&'a mut *mut T);

impl<T> Out<'_, T> {
    #[inline]
    pub(crate) fn set(self, value: T) -> ifunc_status {
        *self.0 = Box::into_raw(Box::new(value));
        ifunc_status::Ok
    }
}

/// An out pointer. What it points to is null until it is set.
///
/// # Safety
/// The pointer is null or points to a pointer that may be written.
#[inline]
pub(crate) unsafe fn out<'a, T>(pointer: *mut *mut T, argument: &str) -> Result<Out<'a, T>, Fault> {
    if pointer.is_null() {
        return Err(Fault::null(argument));
    }
    // SAFETY: the caller's promise. What it points to need not be initialised.
    unsafe { pointer.write(std::ptr::null_mut()) };
    // SAFETY: as above.
    Ok(Out(unsafe { &mut *pointer }))
}

/// Writes a result where the caller wants it; a null pointer: nowhere.
///
/// # Safety
/// The pointer is null or may be written.
#[inline]
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        unsafe { pointer.write(value) };
    }
}

/// Destroys an object; null: nothing.
///
/// # Safety
/// The pointer is null or was made by [`Out::set`], and is used by nothing else, now or later.
pub(crate) unsafe fn destroy<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise.
        let object = unsafe { Box::from_raw(pointer) };
        enter_or((), || {
            drop(object);
            Ok(())
        });
    }
}

/// A string for C. One with a zero in it ends there.
pub(crate) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// A time in nanoseconds; the largest number: without a limit.
pub(crate) fn duration(ns: u64) -> Duration {
    match ns {
        u64::MAX => Duration::MAX,
        ns => Duration::from_nanos(ns),
    }
}

/// The inverse of [`duration`].
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the caller of a function of this interface passes for its callbacks.
#[derive(Clone, Copy)]
pub(crate) struct User(*mut c_void);

// SAFETY: the runtime only hands it back; the header says from which threads.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(user: *mut c_void) -> Self {
        Self(user)
    }

    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

/// The object behind a pointer argument; null is an error that names the argument.
macro_rules! object {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a live object, which nothing changes during the call.
        unsafe { $crate::guard::object($argument, stringify!($argument)) }?
    };
}

/// The same, of an object that the function changes.
macro_rules! object_mut {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a live object, which nothing else uses during the call.
        unsafe { $crate::guard::object_mut($argument, stringify!($argument)) }?
    };
}

/// The same, of an object that may be missing.
macro_rules! object_or_null {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a live object, which nothing changes during the call.
        unsafe { $argument.as_ref() }
    };
}

/// The bytes of a pointer and a length.
macro_rules! bytes {
    ($argument:ident, $len:ident) => {
        // SAFETY: callers in C pass null or that many bytes, which nothing writes during the call.
        unsafe { $crate::guard::bytes($argument, $len, stringify!($argument)) }?
    };
}

/// The string of a pointer.
macro_rules! text {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a string that ends with a zero.
        unsafe { $crate::guard::text($argument, stringify!($argument)) }?
    };
}

/// The same, that may be missing.
macro_rules! text_or_null {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a string that ends with a zero.
        unsafe { $crate::guard::text_or_null($argument, stringify!($argument)) }?
    };
}

/// Where the function puts the object that it makes.
macro_rules! out {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or a pointer to a pointer.
        unsafe { $crate::guard::out($argument, stringify!($argument)) }?
    };
}

/// Writes a result where the caller wants it.
macro_rules! write_to {
    ($argument:ident, $value:expr) => {{
        let value = $value;
        // SAFETY: callers in C pass null or a pointer to what may be written.
        unsafe { $crate::guard::write($argument, value) }
    }};
}

/// Destroys an object.
macro_rules! destroy {
    ($argument:ident) => {
        // SAFETY: callers in C pass null or an object that they do not use any more.
        unsafe { $crate::guard::destroy($argument) }
    };
}
