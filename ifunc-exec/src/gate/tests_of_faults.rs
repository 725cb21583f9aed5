//! Faults and deadlines in what stands for injected code, with callbacks and host functions around.

use std::cell::Cell;
use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ifunc::host;

use super::injected::{invoke, invoke_as, invoke_with_failing_callback};
use super::{Escape, escape_with_panic};
use crate::ExecThread;
use crate::arch::testing::{
    AT_FIRST, TOWARDS_ZERO, TRAP, check_unspoilt, has_no_instruction, is_misaligned, jumps_to, reads,
    rounding, spoil, traps,
};
use crate::contain::watchdog::Watchdog;
use crate::page::page_size;
use crate::threads::Threads;

/// The signal and the address of a fault, and whether it was an overflow.
fn fault(outcome: Result<u32, Escape>) -> (i32, usize, bool) {
    match outcome {
        Err(Escape::Interrupted { at, .. }) => (at.signal, at.address, at.is_overflow),
        other => panic!("{other:?}"),
    }
}

/// Reads a page of a file that has none.
fn reads_beyond_a_file() -> u32 {
    thread_local!(static PAGE: Cell<usize> = const { Cell::new(0) });
    if PAGE.get() == 0 {
        let file = rustix::fs::memfd_create("empty", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let flags = rustix::mm::MapFlags::SHARED;
        // SAFETY: a fresh mapping.
        let page = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                page_size(),
                rustix::mm::ProtFlags::READ,
                flags,
                file,
                0,
            )
            .unwrap()
        };
        PAGE.set(page as usize);
    }
    reads(PAGE.get())
}

#[expect(unconditional_recursion, reason = "the stack ends")]
fn recurses(n: usize) -> usize {
    let room = std::hint::black_box([n as u8; 1024]);
    recurses(n + 1) + room[7] as usize
}

#[test]
fn each_fault_ends_its_invocation() {
    let mut thread = ExecThread::for_tests(1 << 20);
    for _ in 0..20 {
        assert_eq!(fault(invoke(&mut thread, || reads(8))), (libc::SIGSEGV, 8, false));
        // Not canonical: the processor does not say which address.
        assert_eq!(fault(invoke(&mut thread, || reads(1 << 63))).0, libc::SIGSEGV);
        // Far below the stack is no overflow of it.
        let far = 1 << 40;
        assert_eq!(
            fault(invoke(&mut thread, || reads(far))),
            (libc::SIGSEGV, far, false)
        );
        assert_eq!(fault(invoke(&mut thread, reads_beyond_a_file)).0, libc::SIGBUS);
        assert_eq!(fault(invoke(&mut thread, is_misaligned)).0, libc::SIGBUS);
        assert_eq!(fault(invoke(&mut thread, traps)).0, TRAP);
        assert_eq!(fault(invoke(&mut thread, has_no_instruction)).0, libc::SIGILL);
        assert_eq!(
            fault(invoke(&mut thread, || jumps_to(16))),
            (libc::SIGSEGV, 16, false)
        );
        let (signal, _, is_overflow) = fault(invoke(&mut thread, || recurses(0) as u32));
        assert_eq!((signal, is_overflow), (libc::SIGSEGV, true));
        assert_eq!(invoke(&mut thread, || 7), Ok(7));
    }
}

#[test]
fn the_hosts_registers_are_as_they_were_after_a_fault() {
    let mut thread = ExecThread::for_tests(1 << 20);
    for (sets_float_control, control) in [(true, TOWARDS_ZERO), (false, AT_FIRST), (true, TOWARDS_ZERO)] {
        let kept = std::hint::black_box([1usize, 2, 3, 4, 5, 6, 7]);
        let floats = std::hint::black_box([1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5_f64]);
        let outcome = invoke_as(&mut thread, sets_float_control, || spoil(control));
        assert_eq!(fault(outcome).0, libc::SIGILL);
        assert_eq!(rounding(), AT_FIRST);
        check_unspoilt();
        assert_eq!(kept.iter().sum::<usize>(), 28);
        assert_eq!(floats.iter().sum::<f64>(), 40.0);
    }
}

#[test]
fn a_fault_in_a_callback_lets_the_host_finish() {
    let mut thread = ExecThread::for_tests(2 << 20);
    for fails in [|| reads(8), traps, has_no_instruction, || recurses(0) as u32] {
        let outcome = invoke_with_failing_callback(&mut thread, || {
            fails();
        });
        let Err(Escape::Interrupted { trail, .. }) = &outcome else {
            panic!("{outcome:?}")
        };
        assert!(!trail.is_empty());
        assert_eq!(
            invoke(&mut thread, || host::through_gate(|| host::call_back(|| 5))
                .unwrap()),
            Ok(5)
        );
    }
}

#[test]
fn an_invocation_in_an_invocation_ends_alone() {
    let (mut outer, mut inner) = (ExecThread::for_tests(2 << 20), ExecThread::for_tests(1 << 20));
    let outcome = invoke(&mut outer, || {
        let ended = host::through_gate(|| fault(invoke(&mut inner, || reads(8))).0);
        assert_eq!(ended, libc::SIGSEGV);
        ended as u32
    });
    assert_eq!(outcome, Ok(libc::SIGSEGV as u32));
}

#[test]
fn what_is_called_with_little_stack_ends_the_invocation() {
    let mut thread = ExecThread::for_tests(1 << 20);
    #[expect(unconditional_recursion, reason = "the stack ends")]
    fn down(n: usize, each: fn()) -> usize {
        let room = std::hint::black_box([n as u8; 512]);
        each();
        down(n + 1, each) + room[7] as usize
    }
    let allocates = || {
        let (_, alloc) = crate::imports::runtime_imports()[1];
        // SAFETY: `__ifunc_alloc` has this type.
        let alloc: extern "C" fn(usize, usize) -> *mut u8 = unsafe { std::mem::transmute(alloc) };
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(alloc(8, 8), std::alloc::Layout::new::<u64>()) };
    };
    for each in [allocates as fn(), || host::through_gate(|| {})] {
        assert_eq!(
            invoke(&mut thread, || down(0, each) as u32),
            Err(Escape::StackLow)
        );
    }
    fn panics_below(n: usize) -> usize {
        let room = std::hint::black_box([n as u8; 512]);
        let left = &raw const room as usize - crate::gate::caller().unwrap().stack().start;
        if left < 8 << 10 {
            // SAFETY: these frames own nothing.
            unsafe { escape_with_panic(b"deep", b"", 0, 0) }
        }
        panics_below(n + 1) + room[7] as usize
    }
    assert_eq!(
        invoke(&mut thread, || panics_below(0) as u32),
        Err(Escape::StackLow)
    );
}

#[test]
fn an_invocation_that_is_overdue_ends() {
    let threads = Arc::new(Threads::new());
    let limit = Duration::from_millis(20);
    let _watchdog = Watchdog::start(Arc::clone(&threads), limit).unwrap();
    // Made on another thread than the one that runs it: the watchdog has to find it.
    let made = std::thread::scope(|scope| scope.spawn(|| ExecThread::for_tests_of(1 << 20, threads)).join());
    let mut thread = made.unwrap();
    let is_overdue = |outcome: &Result<u32, Escape>| match outcome {
        Err(Escape::Interrupted { at, .. }) => at.signal == 0 && at.pc != 0,
        Err(Escape::Overdue) => true,
        _ => false,
    };
    for _ in 0..2 {
        let began = Instant::now();
        let outcome = invoke(&mut thread, || {
            loop {
                std::hint::spin_loop();
            }
        });
        assert!(is_overdue(&outcome), "{outcome:?}");
        assert!(began.elapsed() >= limit);
        // A host function is not interrupted; the invocation ends when it returns.
        let mut finished = false;
        let outcome = invoke(&mut thread, || {
            host::through_gate(|| {
                let began = Instant::now();
                while began.elapsed() < 3 * limit {
                    std::thread::sleep(Duration::from_millis(1));
                }
                finished = true;
            });
            loop {
                std::hint::spin_loop();
            }
        });
        assert!(is_overdue(&outcome) && finished, "{outcome:?}");
        assert_eq!(invoke(&mut thread, || host::through_gate(|| 3)), Ok(3));
    }
}

/// In a process of its own: the watchdogs of other tests ask the threads of theirs.
#[test]
fn a_thread_that_does_not_answer_is_looked_for_once() {
    if !is_child() {
        let output = child("a_thread_that_does_not_answer_is_looked_for_once");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    // SAFETY: a set that the C library fills; only this process's own threads block the signal.
    let (urgent, set_mask) = unsafe {
        let mut urgent: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut urgent, libc::SIGURG);
        (urgent, move |how| {
            libc::pthread_sigmask(how, &raw const urgent, std::ptr::null_mut())
        })
    };
    let (stop, signals) = (AtomicBool::new(false), AtomicU32::new(0));
    let (prepared, is_prepared) = channel();
    let (bystander_stop, bystander_signals) = (&stop, &signals);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            set_mask(libc::SIG_BLOCK);
            crate::contain::prepare_thread();
            prepared.send(()).unwrap();
            let pause = libc::timespec {
                tv_sec: 0,
                tv_nsec: 2_000_000,
            };
            while !bystander_stop.load(Ordering::Relaxed) {
                // SAFETY: reads the two locals.
                let signal =
                    unsafe { libc::sigtimedwait(&raw const urgent, std::ptr::null_mut(), &raw const pause) };
                bystander_signals.fetch_add(u32::from(signal == libc::SIGURG), Ordering::Relaxed);
            }
        });
        is_prepared.recv().unwrap();
        let threads = Arc::new(Threads::new());
        let limit = Duration::from_millis(8);
        let _watchdog = Watchdog::start(Arc::clone(&threads), limit).unwrap();
        let mut thread = ExecThread::for_tests_of(1 << 20, threads);
        set_mask(libc::SIG_BLOCK);
        let outcome = invoke(&mut thread, || {
            let began = Instant::now();
            while signals.load(Ordering::Relaxed) == 0 && began.elapsed() < Duration::from_secs(20) {
                std::hint::spin_loop();
            }
            // The watchdog checks it some twenty times more.
            let looked_for = Instant::now();
            while looked_for.elapsed() < 5 * limit {
                std::hint::spin_loop();
            }
            set_mask(libc::SIG_UNBLOCK);
            loop {
                std::hint::spin_loop();
            }
        });
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(outcome, Err(Escape::Interrupted { .. })), "{outcome:?}");
    });
    assert_eq!(signals.into_inner(), 1);
}

/// Runs this test again in a process of its own, with the variable set.
fn child(name: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("gate::tests_of_faults::{name}"),
            "--nocapture",
        ])
        .env("IFUNC_TEST_FAULT", "1")
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os("IFUNC_TEST_FAULT").is_some()
}

unsafe extern "C" fn of_the_host(signal: i32) {
    let text = b"the host's own handler\n";
    // SAFETY: reads a constant.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    let default = libc::SIG_DFL;
    // SAFETY: as a handler of a host does.
    unsafe { libc::signal(signal, default) };
}

/// In a process of its own, which it ends.
#[test]
fn a_fault_of_the_host_is_the_hosts() {
    if is_child() {
        // SAFETY: it does what handlers may do.
        unsafe { libc::signal(libc::SIGSEGV, of_the_host as *const () as usize) };
        let mut thread = ExecThread::for_tests(1 << 20);
        assert_eq!(fault(invoke(&mut thread, || reads(8))).0, libc::SIGSEGV);
        let _ = invoke(&mut thread, || host::through_gate(|| reads(8)));
        return;
    }
    let output = child("a_fault_of_the_host_is_the_hosts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    let ours = text.find("ifunc: SIGSEGV in an invocation").expect(&text);
    assert!(
        text.contains("it is in a function of the host") || text.contains("by a pointer"),
        "{text}"
    );
    assert!(text.find("the host's own handler").expect(&text) > ours, "{text}");
}

/// Makes the page readable that the test below reads, and leaves another `errno`, as careless handlers do.
unsafe extern "C" fn recovers(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's argument; the page is the test's own.
    unsafe {
        libc::mprotect((*info).si_addr(), page_size(), libc::PROT_READ);
        *libc::__errno_location() = libc::EINVAL;
    }
}

/// Installs the handler that recovers, and maps a page that cannot be read.
fn page_to_recover() -> *mut c_void {
    // SAFETY: an action of a handler that does what handlers may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = recovers as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    // SAFETY: a fresh mapping.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), page_size(), libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    page
}

/// In a process of its own, which it ends.
#[test]
fn a_fault_that_ends_the_process_is_explained_after_one_that_does_not() {
    if is_child() {
        let page = page_to_recover();
        let mut thread = ExecThread::for_tests(1 << 20);
        let _ = invoke(&mut thread, || host::through_gate(|| reads(page as usize)));
        let _ = invoke(&mut thread, || host::through_gate(traps));
        return;
    }
    let output = child("a_fault_that_ends_the_process_is_explained_after_one_that_does_not");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(TRAP), "{text}");
    for signal in ["SIGSEGV", crate::contain::signal_name(TRAP)] {
        assert!(
            text.contains(&format!("ifunc: {signal} in an invocation")),
            "{text}"
        );
    }
}

/// In a process of its own, as it has another handler.
#[test]
fn a_handler_that_recovers_costs_one_line_and_no_errno() {
    if is_child() {
        let page = page_to_recover();
        let mut thread = ExecThread::for_tests(1 << 20);
        for _ in 0..3 {
            // SAFETY: the page of this test.
            assert_eq!(unsafe { libc::mprotect(page, page_size(), libc::PROT_NONE) }, 0);
            let outcome = invoke(&mut thread, || {
                host::through_gate(|| {
                    // SAFETY: this thread's own.
                    let error = unsafe { &mut *libc::__errno_location() };
                    *error = libc::ENOENT;
                    reads(page as usize);
                    std::hint::black_box(error).cast_unsigned()
                })
            });
            assert_eq!(outcome, Ok(libc::ENOENT as u32));
        }
        return;
    }
    let output = child("a_handler_that_recovers_costs_one_line_and_no_errno");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        text.matches("ifunc: SIGSEGV in an invocation").count(),
        1,
        "{text}"
    );
}

/// In a process of its own, which it ends.
#[test]
fn a_signal_that_a_process_sends_is_no_fault() {
    if is_child() {
        let mut thread = ExecThread::for_tests(1 << 20);
        // SAFETY: ends this process.
        let _ = invoke(&mut thread, || unsafe { libc::raise(libc::SIGFPE) as u32 });
        return;
    }
    let output = child("a_signal_that_a_process_sends_is_no_fault");
    assert_eq!(output.status.signal(), Some(libc::SIGFPE), "{output:?}");
}
