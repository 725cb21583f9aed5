//! The functions of an opened library that make payloads of source arguments.

use std::ffi::c_void;

use ifunc_exec::library;

use super::Library;
use crate::source::error::{Error, LibraryError};

/// The functions of an opened library, for the source arguments that this runtime passes.
#[derive(Debug)]
pub(in super::super) struct SourceFunctions {
    name: String,
    functions: library::SourceFunctions,
}

/// Source arguments as C takes them: no arguments are a null pointer, and a pointer that C passed with a length of 0 stays what it is.
#[inline]
fn as_c(source_args: &[u8]) -> (*const c_void, usize) {
    let none = std::ptr::NonNull::<u8>::dangling().as_ptr().cast_const();
    match source_args.as_ptr() {
        args if source_args.is_empty() && args == none => (std::ptr::null(), 0),
        args => (args.cast(), source_args.len()),
    }
}

impl SourceFunctions {
    /// Opens the same `bytes` that the library was read from.
    ///
    /// # Safety
    /// The bytes must be those of an ifunc library whose author is trusted with this process.
    pub(super) unsafe fn open(bytes: &[u8], library: &Library) -> Result<Self, LibraryError> {
        // SAFETY: the caller's promise.
        let functions = unsafe { library::SourceFunctions::open(bytes, &library.name) };
        Ok(Self {
            name: library.name.clone(),
            functions: functions.map_err(|why| LibraryError::Open {
                path: library.path.clone(),
                why,
            })?,
        })
    }

    /// Upper bound of the payload's length.
    #[inline]
    pub(in super::super) fn bound(&self, source_args: &[u8]) -> usize {
        let (args, n) = as_c(source_args);
        // SAFETY: a readable range.
        unsafe { self.functions.bound(args, n) }
    }

    /// Writes the payload and returns its length.
    #[inline]
    pub(in super::super) fn init(&self, source_args: &[u8], payload: &mut [u8]) -> Result<usize, Error> {
        let (args, n) = as_c(source_args);
        // SAFETY: a readable range, and a writable one.
        let written = unsafe {
            self.functions
                .init(args, n, payload.as_mut_ptr().cast(), payload.len())
        };
        written.map_err(|code| Error::PayloadInit {
            ifunc: self.name.clone(),
            code,
        })
    }
}
