//! The threads that are prepared for signals. The watchdog signals no others: the handler of a deadline uses thread-local storage, which a
//! library that was loaded at run time (`dlopen`) allocates when a thread first uses it. A thread that a signal interrupts in `malloc`
//! must have used it before.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::alternate::AlternateStack;
use super::signals::notify;
use crate::gate::current;

/// Their numbers, as the kernel has them.
static THREADS: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());

thread_local! {
    static HERE: Prepared = Prepared::new();
}

fn threads() -> MutexGuard<'static, BTreeSet<c_int>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prepares the current thread until it ends: gives it an alternate stack, and lets the watchdog signal it. Returns its number.
pub(crate) fn prepare_thread() -> c_int {
    // In the destructors of a thread that ends there are no invocations.
    HERE.try_with(|here| here.number).unwrap_or_else(|_| number())
}

/// The kernel's number of the current thread. Takes a system call.
pub(crate) fn number() -> c_int {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// A thread that is prepared.
struct Prepared {
    number: c_int,
    _stack: AlternateStack,
}

impl Prepared {
    fn new() -> Self {
        // What the handlers use. Before anything signals the thread.
        black_box(current());
        let stack = AlternateStack::install();
        let number = number();
        threads().insert(number);
        Self {
            number,
            _stack: stack,
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        threads().remove(&self.number);
    }
}

/// Signals a thread that is prepared, and no thread that has its number after it.
pub(super) fn notify_one(thread: c_int) {
    // It cannot end while the lock is held.
    let threads = threads();
    if threads.contains(&thread) {
        notify(thread);
    }
}

/// Signals all threads that are prepared.
pub(super) fn notify_all() {
    threads().iter().for_each(|thread| notify(*thread));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: the watchdogs of other tests signal all threads that are prepared.
    #[test]
    fn a_prepared_thread_gets_its_signal() {
        use std::sync::mpsc::channel;
        use std::time::Duration;
        const NAME: &str = "contain::prepared::tests::a_prepared_thread_gets_its_signal";
        const CHILD: &str = "IFUNC_TEST_PREPARED";
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--exact", NAME]).env(CHILD, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        super::super::install(true).unwrap();
        let (send, receive) = channel();
        let thread = std::thread::spawn(move || {
            send.send(prepare_thread()).unwrap();
            // Nothing restarts this call after the handler of a signal.
            // SAFETY: no descriptors.
            let polled = unsafe { libc::poll(std::ptr::null_mut(), 0, 4_000) };
            let why = std::io::Error::last_os_error().raw_os_error();
            send.send(polled).unwrap();
            why
        });
        let number = receive.recv().unwrap();
        let polled = loop {
            notify_one(number);
            if let Ok(polled) = receive.recv_timeout(Duration::from_millis(1)) {
                break polled;
            }
        };
        assert_eq!((polled, thread.join().unwrap()), (-1, Some(libc::EINTR)));
    }

    #[test]
    fn a_thread_is_prepared_until_it_ends() {
        let is_prepared = |number| threads().contains(&number);
        let thread = std::thread::spawn(move || {
            assert!(!is_prepared(number()));
            assert_eq!([prepare_thread(), prepare_thread()], [number(); 2]);
            assert!(is_prepared(number()));
            number()
        });
        // Numbers are not used again so soon.
        assert!(!is_prepared(thread.join().unwrap()));
    }
}
