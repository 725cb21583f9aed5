//! Faults and deadlines of injected code: they end the invocation, not the process.
//!
//! A handler of SIGSEGV, SIGBUS, SIGFPE and SIGILL finds the gate of the thread. If injected code raised the signal, the handler notes
//! why and lets the thread continue in the shim's way out, as after a panic: the ifunc leaves nothing to drop. Every other fault goes
//! to the handler that was installed before.
//!
//! To find the gate, the handlers use thread-local storage. In a host that was loaded at run time (`dlopen`) a thread may allocate when it
//! first does. Threads that enter a gate have done so (`prepared`), and the watchdog signals no others. A fault of the host's
//! own on another thread, in the midst of `malloc`, may wait for itself in such a process instead of ending it.
//!
//! | what | file |
//! |---|---|
//! | the handlers, and the earlier ones | `signals` |
//! | whether an invocation can be left | `gate/interrupt.rs` |
//! | the stack that handlers run on | `alternate` |
//! | the threads that are prepared for signals | `prepared` |
//! | the thread that finds invocations that are overdue | `watchdog` |
//! | functions of the C library that may be left | `memory` |
//! | the last message of a process that ends | `message` |

mod alternate;
pub(crate) mod memory;
mod message;
mod prepared;
mod signals;
pub(crate) mod watchdog;

use std::time::Duration;

pub(crate) use self::prepared::{number, prepare_thread};
pub(crate) use self::signals::{code_name, install, signal_name};

/// What an in-process executor does about invocations that do not end by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainOptions {
    /// Faults end the invocation. Otherwise a message names the ifunc, and the earlier handler runs.
    pub faults: bool,
    /// How long an invocation may run; `None`: without a limit.
    pub deadline: Option<Duration>,
}
