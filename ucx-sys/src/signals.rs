//! Signal handlers that must not be lost when UCX is loaded.

use std::mem::MaybeUninit;

/// Names by which the environment asks UCX for handlers.
const ASKED_FOR: [&str; 3] = ["UCX_ERROR_SIGNALS", "UCX_HANDLE_ERRORS", "UCX_DEBUG_SIGNO"];
/// What UCX may install handlers for.
const SIGNALS: [libc::c_int; 6] = [
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGHUP,
];

/// The handlers of a moment.
pub(crate) struct Handlers([Option<libc::sigaction>; SIGNALS.len()]);

impl Handlers {
    /// Those of this moment, to be put back; none if the environment asks UCX for handlers of its own.
    pub(crate) fn keep() -> Self {
        if ASKED_FOR.iter().any(|name| std::env::var_os(name).is_some()) {
            return Self([None; SIGNALS.len()]);
        }
        Self(SIGNALS.map(|signal| {
            let mut action = MaybeUninit::uninit();
            // SAFETY: a null action changes nothing, and the old one is written to memory that is its own.
            let done = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: written, as the call succeeded.
            (done == 0).then(|| unsafe { action.assume_init() })
        }))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, action) in SIGNALS.into_iter().zip(&self.0) {
            if let Some(action) = action {
                // SAFETY: a handler that was installed a moment ago, in this process.
                unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
            }
        }
    }
}
