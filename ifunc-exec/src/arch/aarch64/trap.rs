//! The state of a thread that a signal interrupts, and where it continues after the handler.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use libc::ucontext_t;

use super::code::return_address;
use crate::gate::{Gate, ifunc_exec_escape};

/// The signals of faults. Compilers end what must not go on with `brk`, which raises SIGTRAP; division by zero raises nothing.
pub(crate) const FAULTS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// The record of the kernel that holds the syndrome of a fault, `struct esr_context`.
const ESR_MAGIC: u32 = 0x4553_5201;
/// Classes of exceptions: an instruction was to be fetched, at an address that has none or that is not aligned.
const FETCHES: [u64; 2] = [0b10_0000, 0b10_0010];
/// Flags that injected code may have set and that the host does not expect: the type of a branch, of which an instruction would have
/// to be a target (BTI), and that tags of memory are not checked (MTE).
const FLAGS: u64 = 0b11 << 10 | 1 << 25;

/// Nothing has to be put in order before a handler runs.
#[inline(always)]
pub(crate) fn enter_handler() {}

/// The state that a handler of a signal interrupts.
#[derive(Debug)]
pub(crate) struct Trap(*mut ucontext_t);

impl Trap {
    /// # Safety
    /// The third argument of a handler that was installed with `SA_SIGINFO`, as long as the handler runs.
    pub(crate) unsafe fn new(context: *mut c_void) -> Self {
        Self(context.cast())
    }

    fn state(&self) -> &libc::mcontext_t {
        // SAFETY: the promise of `new`; the kernel wrote all of it.
        unsafe { &(*self.0).uc_mcontext }
    }

    fn state_mut(&mut self) -> &mut libc::mcontext_t {
        // SAFETY: as in `state`; nothing else refers to it.
        unsafe { &mut (*self.0).uc_mcontext }
    }

    /// The program counter.
    pub(crate) fn pc(&self) -> usize {
        self.state().pc as usize
    }

    /// The stack pointer.
    pub(crate) fn stack(&self) -> usize {
        self.state().sp as usize
    }

    /// The return address of the function that runs, if it is about to begin, or is a function of memory, which keeps it in its
    /// register. `None`: the stack pointer is not on this stack.
    pub(crate) fn return_address(&self, stack: Range<usize>) -> Option<usize> {
        // At the top of the stack nothing has been pushed.
        let is_there = stack.contains(&self.stack()) || self.stack() == stack.end;
        is_there.then(|| return_address(self.state().regs[30] as usize))
    }

    /// A register that may hold the return address of the function that runs.
    pub(crate) fn link(&self) -> Option<usize> {
        Some(self.state().regs[30] as usize)
    }

    /// Whether it is a fault because there is no code at the program counter.
    pub(crate) fn is_fetch(&self) -> bool {
        // The kernel leaves syndrome and address of the last fault of memory where another fault has none. An emulator may report no
        // syndrome; an instruction that reads where it is itself could be fetched.
        let is_about_fetch = self
            .syndrome()
            .is_none_or(|syndrome| FETCHES.contains(&(syndrome >> 26 & 0x3f)));
        is_about_fetch && self.state().fault_address == self.state().pc
    }

    /// The syndrome of the fault, if the kernel reports it.
    fn syndrome(&self) -> Option<u64> {
        let state = &raw const *self.state();
        // SAFETY: the records of the kernel are the last part of the state.
        let records: &[u8] = unsafe {
            let begin = state.cast::<u8>().add(RECORDS);
            std::slice::from_raw_parts(begin, size_of::<libc::mcontext_t>() - RECORDS)
        };
        let mut rest = records;
        // Each has its kind, its length, and 8 bytes of content at least.
        while let Some((head, _)) = rest.split_first_chunk::<16>() {
            let [kind, len] =
                [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
            if kind == ESR_MAGIC {
                return Some(u64::from_le_bytes(*head.last_chunk()?));
            }
            if kind == 0 || len < 16 {
                return None;
            }
            rest = rest.get(len as usize..)?;
        }
        None
    }

    /// Lets the thread leave the invocation of `gate` when the handler returns.
    pub(crate) fn escape(&mut self, gate: &Gate) {
        // The shim loads all that it uses from the gate and from the host's stack: the control of floats, too, unless the image
        // does not set it, and then it is the host's.
        let state = self.state_mut();
        state.pc = (ifunc_exec_escape as *const ()).expose_provenance() as u64;
        state.regs[0] = (&raw const *gate).expose_provenance() as u64;
        state.pstate &= !FLAGS;
    }
}

/// Offset of the kernel's records in the state: address of the fault, 31 registers, stack pointer, program counter, flags; aligned
/// to 16 bytes.
const RECORDS: usize = (8 * (1 + 31 + 3_usize)).next_multiple_of(16);
const _: () = assert!(size_of::<libc::mcontext_t>() == RECORDS + 4096);

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::ExecThread;

    /// Calls with a state that `set` has made of zeros. Returns the state.
    fn with(set: impl FnOnce(&mut libc::mcontext_t), call: impl FnOnce(&mut Trap)) -> ucontext_t {
        // SAFETY: plain data, for which zeros are valid.
        let mut context: ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
        set(&mut context.uc_mcontext);
        // SAFETY: it lives until the call ends, and nothing else refers to it.
        call(&mut unsafe { Trap::new((&raw mut context).cast()) });
        context
    }

    /// Writes the kernel's records: of floats, then of the syndrome.
    fn report(state: &mut libc::mcontext_t, syndrome: u64) {
        // SAFETY: within the state.
        unsafe {
            let records = (&raw mut *state).cast::<u8>().add(RECORDS);
            records.cast::<[u32; 2]>().write([0x4650_8001, 528]);
            records.add(528).cast::<[u32; 2]>().write([ESR_MAGIC, 16]);
            records.add(536).cast::<u64>().write(syndrome);
        }
    }

    #[test]
    fn a_fault_of_a_fetch_is_told_from_others() {
        for (class, is_fetch) in [
            (0x20, true),
            (0x22, true),
            (0x24, false),
            (0x25, false),
            (0x3c, false),
            (0, false),
        ] {
            with(
                |state| {
                    report(state, class << 26 | 0x0200_0007);
                    (state.pc, state.fault_address) = (8, 8);
                },
                |trap| assert_eq!(trap.is_fetch(), is_fetch, "{class:#x}"),
            );
        }
        // The report of an earlier fault.
        with(
            |state| {
                report(state, 0x20 << 26);
                (state.pc, state.fault_address) = (8, 0);
            },
            |trap| assert!(!trap.is_fetch()),
        );
        // Without a report of the kernel.
        for (pc, address) in [(8, 8), (8, 12)] {
            with(
                |state| (state.pc, state.fault_address) = (pc, address),
                |trap| assert_eq!(trap.is_fetch(), pc == address),
            );
        }
        // Records that are none.
        with(
            |state| {
                report(state, 0x20 << 26);
                // SAFETY: within the state.
                unsafe {
                    (&raw mut *state)
                        .cast::<u8>()
                        .add(RECORDS + 4)
                        .cast::<u32>()
                        .write(8)
                };
                (state.pc, state.fault_address) = (4, 8);
            },
            |trap| assert!(!trap.is_fetch()),
        );
    }

    #[test]
    fn a_return_address_is_of_the_stack_alone() {
        for (sp, found) in [
            (0x1000, Some(7)),
            (0x2000, Some(7)),
            (0xff0, None),
            (0x2010, None),
        ] {
            with(
                |state| (state.sp, state.regs[30]) = (sp, 7),
                |trap| {
                    assert_eq!(trap.return_address(0x1000..0x2000), found, "{sp:#x}");
                    assert_eq!(trap.link(), Some(7));
                },
            );
        }
    }

    #[test]
    fn a_thread_leaves_by_the_gate_with_the_flags_of_the_host() {
        let mut thread = ExecThread::for_tests(1 << 20);
        let session = thread.session();
        let gate = Gate::current().unwrap();
        // Negative, zero, carry and overflow stay.
        let kept = 0b1111 << 28;
        for flags in [kept, kept | FLAGS, FLAGS, 1 << 10] {
            let after = with(
                |state| (state.pstate, state.sp) = (flags, 7),
                |trap| {
                    trap.escape(gate);
                    assert_eq!(trap.pc(), ifunc_exec_escape as *const () as usize);
                    assert_eq!(trap.stack(), 7);
                },
            );
            assert_eq!(after.uc_mcontext.pstate, flags & kept);
            assert_eq!(after.uc_mcontext.regs[0], (&raw const *gate).addr() as u64);
        }
        drop(session);
    }
}
