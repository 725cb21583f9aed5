//! Signal handlers, and the stack that they run on, that must not be lost when UCX is loaded.

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

/// The handlers of a moment, and the alternate stack of the calling thread: UCX's initialisers put one of their own there.
///
/// To be dropped by the thread that made it; the pointer in it keeps it there.
pub(crate) struct Handlers {
    actions: [Option<libc::sigaction>; SIGNALS.len()],
    stack: Option<libc::stack_t>,
}

impl Handlers {
    /// Those of this moment, to be put back; none if the environment asks UCX for handlers of its own.
    pub(crate) fn keep() -> Self {
        if ASKED_FOR.iter().any(|name| std::env::var_os(name).is_some()) {
            return Self {
                actions: [None; SIGNALS.len()],
                stack: None,
            };
        }
        let actions = SIGNALS.map(|signal| {
            let mut action = MaybeUninit::uninit();
            // SAFETY: a null action changes nothing, and the old one is written to memory that is its own.
            let done = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: written, as the call succeeded.
            (done == 0).then(|| unsafe { action.assume_init() })
        });
        let mut stack = MaybeUninit::uninit();
        // SAFETY: a null stack changes nothing, and the old one is written to memory that is its own.
        let done = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
        // SAFETY: written, as the call succeeded.
        let stack = (done == 0).then(|| unsafe { stack.assume_init() });
        Self { actions, stack }
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // First, so that a handler that is put back never runs on UCX's stack.
        if let Some(stack) = &self.stack {
            // SAFETY: what this thread had a moment ago, and nothing of it was given back since. One that is in use cannot be
            // replaced, neither by UCX nor here.
            unsafe { libc::sigaltstack(stack, std::ptr::null_mut()) };
        }
        for (signal, action) in SIGNALS.into_iter().zip(&self.actions) {
            if let Some(action) = action {
                // SAFETY: a handler that was installed a moment ago, in this process.
                unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
            }
        }
    }
}
