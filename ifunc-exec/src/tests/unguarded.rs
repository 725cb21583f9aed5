//! Functions of the host that were allowed without a guard: an invocation cannot be left in them.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ifunc_abi::status::Failure;

use super::{calls, failure, install, options, run};
use crate::{ContainOptions, Executor as _, HostSymbols, ImageExecutor, ImageExecutorOptions, Symbol};

/// Uses up the stack that it is called on.
#[expect(unconditional_recursion, reason = "the stack ends")]
pub(super) unsafe extern "C" fn overflows(n: u32) -> u32 {
    let room = std::hint::black_box([n; 256]);
    // SAFETY: none: the fault is the test.
    unsafe { overflows(n + 1) + room[7] }
}

static HAS_COUNTED: AtomicU32 = AtomicU32::new(0);

/// Counts down for some milliseconds, and notes that it did. Its return address lies at its stack pointer all the time.
#[unsafe(naked)]
unsafe extern "C" fn counts(times: u32) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov eax, edi",
        "2:",
        "dec eax",
        "jnz 2b",
        "mov dword ptr [rip + {done}], 1",
        "ret",
        done = sym HAS_COUNTED,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "2:",
        "subs w0, w0, #1",
        "b.ne 2b",
        "mov w0, #1",
        "adrp x9, {done}",
        "str w0, [x9, :lo12:{done}]",
        "ret",
        done = sym HAS_COUNTED,
    );
}

fn executor(deadline: Option<Duration>) -> ImageExecutor {
    let contain = ContainOptions {
        faults: true,
        deadline,
    };
    let options = ImageExecutorOptions { contain, ..options() };
    let mut symbols = HostSymbols::new().unwrap();
    // SAFETY: the function takes a number.
    let counts = unsafe { Symbol::untyped("counts", counts as *const c_void) };
    symbols.allow(counts).unwrap();
    ImageExecutor::new(options, symbols, Arc::new(())).unwrap()
}

#[test]
fn a_deadline_does_not_end_an_unguarded_function() {
    let executor = executor(Some(Duration::from_millis(2)));
    let counts = install(&executor, &calls("counts", [80_000_000, 0, 0])).unwrap();
    // It may be found overdue after the function has returned.
    let _ = run(&executor, &counts, None);
    assert_eq!(HAS_COUNTED.load(Ordering::Relaxed), 1);
}

#[test]
fn a_function_of_memory_that_an_image_called_is_left_whatever_else_it_may_call() {
    let executor = executor(None);
    // Where its extent is not known, this would end the process.
    if crate::contain::memory::contains(crate::imports::memory_functions().next().unwrap()) {
        let (why, text, _) = failure(&executor, &calls("memcpy", [16, 16, 300]));
        assert!(text.starts_with("SIGSEGV (not mapped), address 0x"), "{text}");
        assert_eq!(why, Failure::Fault);
    }
}

#[test]
fn changes_tell_whether_they_bring_an_unguarded_function() {
    let mut changes = crate::symbols::Changes::default();
    assert!(!changes.has_unguarded());
    changes.symbols.insert("removed".into(), None);
    #[ifunc::export]
    fn has_a_guard(of: u64) -> u64 {
        of
    }
    changes
        .symbols
        .insert("has_a_guard".into(), Symbol::exported("has_a_guard"));
    assert!(!changes.has_unguarded());
    // SAFETY: never used.
    let counts = unsafe { Symbol::untyped("counts", counts as *const c_void) };
    changes.symbols.insert("counts".into(), Some(counts));
    assert!(changes.has_unguarded());
}

#[test]
fn an_image_names_what_it_imports() {
    let executor = executor(None);
    let counts = install(&executor, &calls("counts", [1, 0, 0])).unwrap();
    assert!(counts.import_names().eq(["counts"]));
}

#[test]
fn only_words_of_its_stack_are_what_an_invocation_left_behind() {
    let executor = executor(None);
    let mut thread = executor.thread().unwrap();
    let mut session = thread.session();
    // On the stack of this thread, and nowhere.
    let local = 7usize;
    for from in [ptr::from_ref(&local).addr(), 0, 1, usize::MAX] {
        assert_eq!(session.left_behind(from).count(), 0, "{from:#x}");
    }
}
