//! Invocations that a signal ends: what may be left, and what must not.
//!
//! Everything here runs in handlers of signals: it allocates nothing and takes no lock. It reads what the gate's shim writes for
//! every invocation.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

use super::{Gate, Noted, Side, current};
use crate::InstalledEntry;
use crate::arch::Trap;
use crate::contain::memory;
use crate::ended::log;
use crate::stack::GUARD;

/// Where a signal ended an invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interruption {
    /// The signal of a fault; 0: the deadline.
    pub(crate) signal: c_int,
    /// The kernel's reason for it.
    pub(crate) code: c_int,
    /// The address that it is about.
    pub(crate) address: usize,
    /// The program counter.
    pub(crate) pc: usize,
    /// The stack pointer.
    pub(crate) stack: usize,
    /// A register that may hold the return address of the function that was interrupted.
    pub(crate) link: Option<usize>,
    /// The stack was used up.
    pub(crate) is_overflow: bool,
}

/// What becomes of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ends the invocation when the handler returns.
    Contained,
    /// No invocation is concerned.
    Elsewhere,
    /// It happened in an invocation that cannot be left, for this reason.
    Uncontained(&'static str),
}

impl Gate {
    /// The gate of the innermost invocation or session of this thread.
    pub(crate) fn current<'a>() -> Option<&'a Self> {
        // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
        unsafe { current().as_ref() }
    }

    /// Ends the invocation because of a fault, if that is possible.
    pub(crate) fn fault(&self, mut at: Interruption, trap: &mut Trap) -> Outcome {
        if !self.passages.is_within() {
            return Outcome::Elsewhere;
        }
        let is_code = self.containment.code.contains(&at.pc);
        if !self.state.is(Side::Ifunc) {
            return Outcome::Uncontained(if is_code {
                "a function of the host called injected code by a pointer, and the host's frames cannot be left"
            } else {
                "it is in a function of the host that injected code called, whose frames cannot be left"
            });
        }
        at.is_overflow = (self.stack_low - GUARD..self.stack_low).contains(&at.address);
        // Without such functions, injected code calls nothing but the gate's shims and functions of memory, which own nothing
        // before they enter the host.
        let is_guarded = !self.containment.has_unguarded.load(Ordering::Relaxed);
        let may_leave = is_code
            || at.is_overflow && is_guarded
            || (memory::contains(at.pc) || trap.is_fetch()) && (is_guarded || self.was_called_by_code(trap));
        if !may_leave {
            return Outcome::Uncontained(
                "it may be in a function that was allowed without a guard (`allow`, `allow_set`, `allow_library`), whose \
                 frames cannot be left",
            );
        }
        if !self.containment.contains {
            return Outcome::Uncontained(
                "help: `level(Level::Contained)` of the target's policy ends the invocation alone",
            );
        }
        self.interrupt(at, trap);
        Outcome::Contained
    }

    /// The handler of a deadline's signal: ends the invocations of this thread that are overdue, or sees to it that they end when
    /// the host's function returns.
    pub(crate) fn overdue(&self, trap: &mut Trap) {
        let mut next = Some(self);
        while let Some(gate) = next {
            if gate.passages.is_overdue_here() {
                if !gate.state.is(Side::Ifunc) {
                    gate.state.set(Side::HostAborted);
                } else if ptr::eq(gate, self) && gate.may_interrupt(trap) {
                    let at = Interruption {
                        pc: trap.pc(),
                        stack: trap.stack(),
                        link: trap.link(),
                        ..Interruption::default()
                    };
                    gate.interrupt(at, trap);
                }
            }
            // SAFETY: null, or the gate of a session of this thread that has not ended.
            next = unsafe { gate.outer().as_ref() };
        }
    }

    /// Whether an invocation on the ifunc's side can be left where the signal came. If not, the watchdog sends another one.
    fn may_interrupt(&self, trap: &Trap) -> bool {
        // A function of the host, or the handler of another signal, calls functions of memory, too.
        self.containment.code.contains(&trap.pc())
            || memory::contains(trap.pc()) && self.was_called_by_code(trap)
    }

    fn interrupt(&self, mut at: Interruption, trap: &mut Trap) {
        if at.is_overflow {
            // What a report reads.
            at.stack = at.stack.max(self.stack_low);
        }
        // SAFETY: this thread reads it after the invocation only.
        unsafe { *self.interruption.get() = at };
        self.note(Noted::Interrupted);
        trap.escape(self);
    }

    /// Whether the function that runs was called by injected code. Its return address is where its caller left it: it is about to
    /// begin, or is a function of memory, which keeps it there.
    fn was_called_by_code(&self, trap: &Trap) -> bool {
        let back = trap.return_address(self.stack_low..self.stack_top);
        back.is_some_and(|back| self.is_after_code(back))
    }

    /// Whether a call in injected code returns to this address.
    fn is_after_code(&self, back: usize) -> bool {
        self.containment.code.start < back && back <= self.containment.code.end
    }

    /// The entry of the invocation that runs, and the number of its source: for the message of a process that is about to end.
    /// `None`: it has no context, or has written over it.
    ///
    /// # Safety
    /// An invocation runs, on either side of the gate.
    pub(crate) unsafe fn invocation(&self) -> Option<(&InstalledEntry, u64)> {
        // SAFETY: the shim of the invocation that runs wrote it, and contexts live as long as their invocations.
        let context = unsafe { (*self.context.get()).as_ref() }?;
        if !ptr::fn_addr_eq(context.log, log as unsafe extern "C" fn(_, _, _, _)) {
            return None;
        }
        // SAFETY: `ImageExecutor::run` made the context, and its entry lives while it runs.
        let entry = unsafe { context.host.cast::<InstalledEntry>().as_ref() }?;
        Some((entry, context.sender))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Containment;
    use super::*;
    use crate::stack::Stack;

    #[test]
    fn a_return_address_in_the_code_tells_who_called() {
        let stack = Stack::new(1 << 16).unwrap();
        let containment = Containment {
            code: 0x1000..0x2000,
            contains: true,
            has_unguarded: Default::default(),
            limit: None,
        };
        let gate = Gate::new(&stack, containment);
        assert_eq!(gate.stack(), stack.low()..stack.top() - 16);
        for (word, is_code) in [
            (0x1000, false),
            (0x1001, true),
            (0x2000, true),
            (0x2001, false),
            (0, false),
        ] {
            assert_eq!(gate.is_after_code(word), is_code, "{word:#x}");
        }
    }
}
