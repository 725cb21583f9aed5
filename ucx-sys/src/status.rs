//! What a status means.

use std::ffi::CStr;
use std::fmt;

use crate::{UCS_PTR_STATUS, Ucx, ucs_status_ptr_t, ucs_status_t};

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
        f.write_str(self.message)
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

    /// A status with UCX's words for it.
    #[must_use]
    pub fn status(&self, code: ucs_status_t) -> Status {
        // SAFETY: asks nothing of its callers; every number has a text.
        let text = unsafe { self.ucs_status_string(code) };
        let message = if text.is_null() {
            "an unknown status"
        } else {
            // SAFETY: for the statuses that there are it is a string constant of the library, which is never unloaded; for
            // others a buffer of its own, static too, whose text is ASCII and ended by a zero at every moment.
            unsafe { CStr::from_ptr(text) }
                .to_str()
                .unwrap_or("an unknown status")
        };
        Status { code, message }
    }
}
