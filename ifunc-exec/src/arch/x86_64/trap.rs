//! The state of a thread that a signal interrupts, and where it continues after the handler.

use std::ffi::c_void;

use libc::ucontext_t;

use crate::gate::{Gate, ifunc_exec_escape};

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

    /// Whether it is a fault because there is no code at the program counter.
    pub(crate) fn is_fetch(&self) -> bool {
        self.register(libc::REG_TRAPNO) == PAGE_FAULT && self.register(libc::REG_ERR) & FETCH != 0
    }

    /// Lets the thread leave the invocation of `gate` when the handler returns.
    pub(crate) fn escape(&mut self, gate: &Gate) {
        // The shim loads all that it uses, floating-point state included, from the gate and from the host's stack.
        self.set_register(libc::REG_RIP, ifunc_exec_escape as *const () as i64);
        self.set_register(libc::REG_RDI, (&raw const *gate).expose_provenance() as i64);
        self.set_register(libc::REG_EFL, self.register(libc::REG_EFL) & !FLAGS);
    }
}
