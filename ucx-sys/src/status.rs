//! What a status means.

use std::ffi::CStr;
use std::fmt;

use crate::*;

/// A status that is an error, with UCX's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The number.
    pub code: ucs_status_t,
    message: &'static str,
}

impl Status {
    /// What UCX calls it.
    #[must_use]
    pub fn message(self) -> &'static str {
        self.message
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)?;
        if is_named(self.code) {
            Ok(())
        } else {
            write!(f, " ({})", self.code)
        }
    }
}

impl std::error::Error for Status {}

impl Ucx {
    /// `Ok` for statuses that are none (`UCS_OK`, `UCS_INPROGRESS`).
    ///
    /// # Errors
    /// The status, if it is negative.
    pub fn check(&self, status: ucs_status_t) -> Result<(), Status> {
        if status >= 0 {
            Ok(())
        } else {
            Err(self.status(status))
        }
    }

    /// As [`check`](Self::check), for what functions return that may begin a request.
    ///
    /// # Errors
    /// The status, if it is negative.
    pub fn check_ptr(&self, ptr: ucs_status_ptr_t) -> Result<(), Status> {
        self.check(UCS_PTR_STATUS(ptr))
    }

    /// A status with UCX's words for it, or a fixed text if these bindings have no name for it.
    #[must_use]
    pub fn status(&self, code: ucs_status_t) -> Status {
        let message = if is_named(code) {
            // SAFETY: asks nothing of its callers.
            let text = unsafe { self.ucs_status_string(code) };
            // SAFETY: for a status that has a name it is a string constant of the library, which is never unloaded.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
        } else {
            // UCX would print the number to one buffer for all threads, over what it printed there before.
            None
        };
        Status {
            code,
            message: message
                .and_then(|text| text.to_str().ok())
                .unwrap_or("a status that has no name"),
        }
    }
}

/// Whether a status has a name, and so a text of its own in every version of UCX. The ends of ranges are none.
fn is_named(code: ucs_status_t) -> bool {
    matches!(
        code,
        UCS_OK
            | UCS_INPROGRESS
            | UCS_ERR_NO_MESSAGE
            | UCS_ERR_NO_RESOURCE
            | UCS_ERR_IO_ERROR
            | UCS_ERR_NO_MEMORY
            | UCS_ERR_INVALID_PARAM
            | UCS_ERR_UNREACHABLE
            | UCS_ERR_INVALID_ADDR
            | UCS_ERR_NOT_IMPLEMENTED
            | UCS_ERR_MESSAGE_TRUNCATED
            | UCS_ERR_NO_PROGRESS
            | UCS_ERR_BUFFER_TOO_SMALL
            | UCS_ERR_NO_ELEM
            | UCS_ERR_SOME_CONNECTS_FAILED
            | UCS_ERR_NO_DEVICE
            | UCS_ERR_BUSY
            | UCS_ERR_CANCELED
            | UCS_ERR_SHMEM_SEGMENT
            | UCS_ERR_ALREADY_EXISTS
            | UCS_ERR_OUT_OF_RANGE
            | UCS_ERR_TIMED_OUT
            | UCS_ERR_EXCEEDS_LIMIT
            | UCS_ERR_UNSUPPORTED
            | UCS_ERR_REJECTED
            | UCS_ERR_NOT_CONNECTED
            | UCS_ERR_CONNECTION_RESET
            | UCS_ERR_ENDPOINT_TIMEOUT
    )
}
