//! Handlers of signals, and the handlers that were there before.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::{sigaction, siginfo_t};

use super::{memory, message};
use crate::arch::{FAULTS, Trap, enter_handler};
use crate::gate::{Gate, Interruption, Outcome};

/// The signal of a deadline. Nothing happens to a process that gets it without a handler.
const DEADLINE: c_int = libc::SIGURG;

/// The action that our handler replaced, by signal. Written before our handler is installed, and again with what it replaced.
static BEFORE: [AtomicPtr<sigaction>; 32] = [const { AtomicPtr::new(ptr::null_mut()) }; 32];
/// Its address is the value of our own deadline signals.
static OURS: u8 = 0;

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installs the handlers of faults, and that of deadlines if there are deadlines. Warns if the process has replaced one of our
/// handlers of faults since.
///
/// # Errors
/// The kernel's, or those of what filters system calls.
pub(crate) fn install(deadlines: bool) -> io::Result<()> {
    static OF_FAULTS: Mutex<bool> = Mutex::new(false);
    static OF_DEADLINES: Mutex<bool> = Mutex::new(false);
    let once = |is_installed: &Mutex<bool>, signals: &[c_int], handler| {
        let mut is_installed = is_installed.lock().unwrap_or_else(PoisonError::into_inner);
        let was_installed = *is_installed;
        if !was_installed {
            for signal in signals {
                install_one(*signal, handler)?;
            }
            *is_installed = true;
        }
        io::Result::Ok(was_installed)
    };
    memory::find();
    let was_installed = once(&OF_FAULTS, &FAULTS, on_fault)?;
    if deadlines {
        once(&OF_DEADLINES, &[DEADLINE], on_deadline)?;
    }
    for signal in replaced().filter(|_| was_installed) {
        tracing::warn!(
            target: crate::LOG,
            signal = signal_name(signal),
            "another handler replaced that of ifunc: a fault of an ifunc ends the process; help: install handlers before the first \
             target is made, or call the handler that was there before"
        );
    }
    Ok(())
}

fn install_one(signal: c_int, handler: Handler) -> io::Result<()> {
    let address = handler as *const () as usize;
    let mut action = action();
    action.sa_sigaction = address;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // A deadline must not end the invocation while the handler of its fault runs: that would not return, and its signal stay blocked.
    // SAFETY: writes the local.
    unsafe { libc::sigaddset(&raw mut action.sa_mask, DEADLINE) };
    let seen = action_of(signal)?;
    if seen.sa_sigaction == address {
        // An earlier attempt failed at another signal.
        return Ok(());
    }
    // For a signal that comes before the next line but one.
    publish(signal, Box::new(seen));
    let replaced = exchange(signal, &raw const action)?;
    // Another thread may have installed a handler in between.
    publish(signal, Box::new(replaced));
    Ok(())
}

/// Makes an action the one that our handler replaced. The one before is not freed: a handler may be reading it.
fn publish(signal: c_int, before: Box<sigaction>) {
    /// Where checkers of leaks find them.
    static EARLIER: Mutex<Vec<&sigaction>> = Mutex::new(Vec::new());
    let earlier = BEFORE[signal as usize].swap(Box::into_raw(before), Ordering::AcqRel);
    // SAFETY: null, or an action that was published, which is never freed.
    if let Some(earlier) = unsafe { earlier.as_ref() } {
        EARLIER
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(earlier);
    }
}

/// An action without flags, mask or handler.
fn action() -> sigaction {
    // SAFETY: plain data, for which zeros are valid.
    unsafe { MaybeUninit::<sigaction>::zeroed().assume_init() }
}

fn action_of(signal: c_int) -> io::Result<sigaction> {
    exchange(signal, ptr::null())
}

/// Sets an action, or none if `new` is null, and returns the one that was there.
fn exchange(signal: c_int, new: *const sigaction) -> io::Result<sigaction> {
    let mut old = action();
    // SAFETY: writes the local. The handler of `install_one` is of the type that SA_SIGINFO asks for, and does what handlers may do.
    match unsafe { libc::sigaction(signal, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signals of faults that another handler than ours handles.
fn replaced() -> impl Iterator<Item = c_int> {
    let ours = on_fault as *const () as usize;
    FAULTS
        .into_iter()
        .filter(move |signal| action_of(*signal).is_ok_and(|action| action.sa_sigaction != ours))
}

/// Keeps `errno` for the code that a signal interrupts: what a handler calls may set it.
struct KeptError(c_int);

impl KeptError {
    fn keep() -> Self {
        // SAFETY: this thread's own, of the C library that is linked with the program; it is read.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptError {
    fn drop(&mut self) {
        // SAFETY: as in `keep`; it is written.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    enter_handler();
    let _kept = KeptError::keep();
    // SAFETY: the kernel's arguments, or those of a handler that was installed after ours and passes them on.
    let (mut trap, code, address) = unsafe {
        let info = &*info;
        (Trap::new(context), info.si_code, info.si_addr() as usize)
    };
    // What a process sent is no fault of the code that it interrupts.
    if code > 0
        && let Some(gate) = Gate::current()
    {
        let at = Interruption {
            signal,
            code,
            address,
            pc: trap.pc(),
            stack: trap.stack(),
            link: trap.link(),
            is_overflow: false,
        };
        match gate.fault(at, &mut trap) {
            Outcome::Contained => return,
            Outcome::Uncontained(why) if message::is_due(has_no_handler(signal)) => {
                message::print(gate, &at, why)
            }
            Outcome::Uncontained(_) | Outcome::Elsewhere => {}
        }
    }
    // SAFETY: the arguments of this handler.
    unsafe { pass_on(signal, info, context) }
}

unsafe extern "C" fn on_deadline(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    enter_handler();
    let _kept = KeptError::keep();
    // SAFETY: as in `on_fault`; signals of this code carry a value.
    let is_ours = unsafe {
        (*info).si_code == libc::SI_QUEUE && (*info).si_value().sival_ptr.addr() == (&raw const OURS).addr()
    };
    if !is_ours {
        // SAFETY: the arguments of this handler.
        return unsafe { pass_on(signal, info, context) };
    }
    if let Some(gate) = Gate::current() {
        // SAFETY: as in `on_fault`.
        gate.overdue(&mut unsafe { Trap::new(context) });
    }
}

/// The action that our handler replaced.
fn before(signal: c_int) -> &'static sigaction {
    // SAFETY: written before our handler was installed, and never freed.
    unsafe { &*BEFORE[signal as usize].load(Ordering::Acquire) }
}

/// Whether a fault ends the process: there was no handler before ours.
fn has_no_handler(signal: c_int) -> bool {
    matches!(before(signal).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

/// Does what would have happened without our handler.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = before(signal);
    // SAFETY: the caller's promise.
    let was_sent = unsafe { (*info).si_code } <= 0;
    let default = action();
    match before.sa_sigaction {
        libc::SIG_IGN if was_sent || signal == DEADLINE => {}
        // By default it is ignored.
        libc::SIG_DFL if signal == DEADLINE => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the instruction that faults is executed again when this handler returns, and ends the process. What was
            // sent is sent again, to this thread: it is blocked until then.
            unsafe {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if was_sent {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            let mut mask = MaybeUninit::uninit();
            // SAFETY: it was installed as a handler of this signal with these flags; it runs with the mask that it asked for.
            unsafe {
                if before.sa_flags & libc::SA_RESETHAND != 0 {
                    // It relies on that: a fault that happens again when it has returned ends the process.
                    libc::sigaction(signal, &raw const default, ptr::null_mut());
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const before.sa_mask, mask.as_mut_ptr());
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut());
            }
        }
    }
}

/// A signal of ours that carries a value, as the kernel takes it.
#[repr(C, align(8))]
struct Queued {
    signal: c_int,
    error: c_int,
    code: c_int,
    _aligned: c_int,
    pid: c_int,
    uid: u32,
    value: *const u8,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<siginfo_t>());

/// Sends a thread of this process the signal of a deadline: its handler ends the invocations that are overdue. Only for threads that
/// are prepared: see `prepared`.
pub(super) fn notify(thread: c_int) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let info = Queued {
        signal: DEADLINE,
        error: 0,
        code: libc::SI_QUEUE,
        _aligned: 0,
        pid,
        uid: rustix::process::getuid().as_raw(),
        value: &raw const OURS,
        _rest: [0; 12],
    };
    // SAFETY: reads the local; the handler was installed before there was a deadline.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            thread,
            DEADLINE,
            &raw const info,
        )
    };
}

/// The name of a signal of a fault.
pub(crate) fn signal_name(signal: c_int) -> &'static str {
    match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        _ => "a signal",
    }
}

/// The kernel's reason for a signal, in words; empty: nothing that helps.
pub(crate) fn code_name(signal: c_int, code: c_int) -> &'static str {
    match (signal, code) {
        (libc::SIGSEGV, 1) => "not mapped",
        (libc::SIGSEGV, 2) => "not permitted",
        (libc::SIGSEGV, libc::SI_KERNEL) => "no canonical address, or a privileged instruction",
        (libc::SIGBUS, 1) => "misaligned",
        (libc::SIGBUS, 2) => "beyond the end of a file",
        (libc::SIGFPE, 1) => "integer division by zero, or its result overflows",
        (libc::SIGFPE, 2) => "integer overflow",
        (libc::SIGFPE, 3) => "floating-point division by zero",
        (libc::SIGFPE, 4) => "floating-point overflow",
        (libc::SIGFPE, 5) => "floating-point underflow",
        (libc::SIGFPE, 6) => "inexact floating-point result",
        (libc::SIGFPE, 7) => "invalid floating-point operation",
        (libc::SIGILL, _) => "no valid instruction",
        (libc::SIGTRAP, _) => "a trap instruction",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_cannot_be_installed_is_an_error() {
        // No process handles this signal.
        let error = install_one(libc::SIGKILL, on_fault).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    /// In a process of its own, whose handler it replaces.
    #[test]
    fn a_handler_that_replaced_ours_is_found() {
        const NAME: &str = "contain::signals::tests::a_handler_that_replaced_ours_is_found";
        const CHILD: &str = "IFUNC_TEST_REPLACED";
        if std::env::var_os(CHILD).is_some() {
            install(false).unwrap();
            assert_eq!(replaced().next(), None);
            // SAFETY: the default.
            unsafe { libc::signal(libc::SIGFPE, libc::SIG_DFL) };
            assert!(replaced().eq([libc::SIGFPE]));
            // It is found again, and is not replaced in its turn.
            install(false).unwrap();
            assert!(replaced().eq([libc::SIGFPE]));
            return;
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", NAME]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn each_signal_and_each_reason_has_its_words() {
        let names = FAULTS.map(signal_name);
        assert_eq!(names[..4], ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"]);
        assert!(!names.contains(&"a signal"));
        let of = |signal, codes: &[c_int]| codes.iter().map(|code| code_name(signal, *code)).collect();
        let words: Vec<Vec<&str>> = vec![
            of(libc::SIGSEGV, &[1, 2, libc::SI_KERNEL]),
            of(libc::SIGBUS, &[1, 2]),
            of(libc::SIGFPE, &[1, 2, 3, 4, 5, 6, 7]),
            of(libc::SIGILL, &[1]),
            of(libc::SIGTRAP, &[1]),
        ];
        let distinct: std::collections::HashSet<_> = words.iter().flatten().collect();
        assert_eq!(distinct.len(), 14);
        assert!(distinct.iter().all(|words| words.len() > 8), "{distinct:?}");
        assert_eq!(
            [
                code_name(libc::SIGSEGV, 9),
                code_name(libc::SIGFPE, 8),
                signal_name(1)
            ],
            ["", "", "a signal"]
        );
    }

    #[test]
    fn a_second_attempt_keeps_the_earlier_action() {
        install(true).unwrap();
        for (signal, handler) in [(libc::SIGSEGV, on_fault as Handler), (DEADLINE, on_deadline)] {
            install_one(signal, handler).unwrap();
            assert_ne!(before(signal).sa_sigaction, handler as *const () as usize);
        }
    }
}
