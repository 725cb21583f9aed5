//! The state of a thread that a signal interrupts, and where it continues after the handler.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;

use libc::ucontext_t;

use crate::gate::{Gate, ifunc_exec_escape};

/// The signals of faults.
pub(crate) const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
/// Number of the page-fault exception.
const PAGE_FAULT: i64 = 14;
/// Bit of a page fault's error code: an instruction was to be fetched.
const FETCH: i64 = 1 << 4;
/// Flags that injected code may have set and that the host does not expect: single steps, direction, nested task, alignment checks.
const FLAGS: i64 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18;

/// Clears the flag that makes the processor check alignment, which code of the host does not expect. The kernel leaves it set in a
/// handler, which begins with this.
#[inline(always)]
pub(crate) fn enter_handler() {
    // SAFETY: flags that the compiler does not rely on; the stack is as before.
    unsafe { std::arch::asm!("pushfq", "and dword ptr [rsp], {flag}", "popfq", flag = const !(1 << 18)) };
}

/// The state that a handler of a signal interrupts.
#[derive(Debug)]
pub(crate) struct Trap(*mut ucontext_t);

impl Trap {
    /// # Safety
    /// The third argument of a handler that was installed with `SA_SIGINFO`, as long as the handler runs.
    pub(crate) unsafe fn new(context: *mut c_void) -> Self {
        Self(context.cast())
    }

    fn register(&self, register: i32) -> i64 {
        // SAFETY: the promise of `new`; the kernel wrote all registers.
        unsafe { (*self.0).uc_mcontext.gregs[register as usize] }
    }

    fn set_register(&mut self, register: i32, value: i64) {
        // SAFETY: as in `register`; nothing else refers to it.
        unsafe { (*self.0).uc_mcontext.gregs[register as usize] = value };
    }

    /// The program counter.
    pub(crate) fn pc(&self) -> usize {
        self.register(libc::REG_RIP) as usize
    }

    /// The stack pointer.
    pub(crate) fn stack(&self) -> usize {
        self.register(libc::REG_RSP) as usize
    }

    /// The return address of the function that runs, if it is about to begin, or is a function of memory, which pushes nothing: the word
    /// at the stack pointer. `None`: that is not on this stack.
    pub(crate) fn return_address(&self, stack: Range<usize>) -> Option<usize> {
        let at = self.stack();
        let is_there = stack.contains(&at) && at.is_multiple_of(align_of::<usize>());
        // SAFETY: aligned and within the usable part of the mapped stack that this thread runs on.
        is_there.then(|| unsafe { ptr::with_exposed_provenance::<usize>(at).read_volatile() })
    }

    /// A register that may hold the return address of the function that runs: none, it is on the stack.
    pub(crate) fn link(&self) -> Option<usize> {
        None
    }

    /// Whether it is a fault because there is no code at the program counter.
    pub(crate) fn is_fetch(&self) -> bool {
        self.register(libc::REG_TRAPNO) == PAGE_FAULT && self.register(libc::REG_ERR) & FETCH != 0
    }

    /// Lets the thread leave the invocation of `gate` when the handler returns.
    pub(crate) fn escape(&mut self, gate: &Gate) {
        // The shim loads all that it uses from the gate and from the host's stack: the control of floats, too, unless the image
        // does not set it, and then it is the host's.
        self.set_register(libc::REG_RIP, ifunc_exec_escape as *const () as i64);
        self.set_register(libc::REG_RDI, (&raw const *gate).expose_provenance() as i64);
        self.set_register(libc::REG_EFL, self.register(libc::REG_EFL) & !FLAGS);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::ExecThread;

    /// Calls with a state whose registers are these, and zero. Returns the state.
    fn with(registers: &[(i32, i64)], call: impl FnOnce(&mut Trap)) -> [i64; 23] {
        // SAFETY: plain data, for which zeros are valid.
        let mut context: ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
        for (register, value) in registers {
            context.uc_mcontext.gregs[*register as usize] = *value;
        }
        // SAFETY: it lives until the call ends, and nothing else refers to it.
        call(&mut unsafe { Trap::new((&raw mut context).cast()) });
        context.uc_mcontext.gregs
    }

    #[test]
    fn a_page_fault_of_a_fetch_is_told_from_others() {
        const OTHERS: i64 = 0b101;
        for (number, error, is_fetch) in [
            (PAGE_FAULT, FETCH, true),
            (PAGE_FAULT, FETCH | OTHERS, true),
            (PAGE_FAULT, OTHERS, false),
            (PAGE_FAULT, 0, false),
            (13, FETCH, false),
            (13, 0, false),
        ] {
            with(&[(libc::REG_TRAPNO, number), (libc::REG_ERR, error)], |trap| {
                assert_eq!(trap.is_fetch(), is_fetch, "{number} {error:#b}");
            });
        }
    }

    #[test]
    fn a_thread_leaves_by_the_gate_with_the_flags_of_the_host() {
        let mut thread = ExecThread::for_tests(1 << 20);
        let session = thread.session();
        let gate = Gate::current().unwrap();
        // Zero, carry and interrupts stay.
        let kept = 1 << 0 | 1 << 6 | 1 << 9;
        for flags in [kept, kept | FLAGS, FLAGS, 1 << 10] {
            let after = with(&[(libc::REG_EFL, flags), (libc::REG_RSP, 7)], |trap| {
                trap.escape(gate);
                assert_eq!(trap.pc(), ifunc_exec_escape as *const () as usize);
                assert_eq!(trap.stack(), 7);
            });
            assert_eq!(after[libc::REG_EFL as usize], flags & kept);
            assert_eq!(after[libc::REG_RDI as usize], (&raw const *gate).addr() as i64);
        }
        drop(session);
    }

    #[test]
    fn a_return_address_is_read_of_the_stack_alone() {
        let words = [0x1800_usize, 0x1900];
        let (begin, word) = (words.as_ptr().expose_provenance(), size_of::<usize>());
        let stack = begin..begin + words.len() * word;
        for (at, found) in [
            (begin, Some(0x1800)),
            (begin + word, Some(0x1900)),
            (begin + 1, None),
            (begin - word, None),
            (stack.end, None),
        ] {
            with(&[(libc::REG_RSP, at as i64)], |trap| {
                assert_eq!(trap.return_address(stack.clone()), found, "{at:#x}");
                assert_eq!(trap.link(), None);
            });
        }
    }

    #[test]
    fn a_handler_begins_with_the_check_of_alignment_off() {
        let (before, after): (u64, u64);
        // SAFETY: nothing between the three reads memory at an odd address; the last one leaves the flag as it was.
        unsafe {
            std::arch::asm!("pushfq", "or dword ptr [rsp], 0x40000", "popfq", "pushfq", "pop {}", out(reg) before);
            enter_handler();
            std::arch::asm!("pushfq", "pop {0}", "push {0}", "and dword ptr [rsp], 0xfffbffff", "popfq", out(reg) after);
        }
        assert_eq!((before & 1 << 18, after & 1 << 18), (1 << 18, 0));
    }
}
