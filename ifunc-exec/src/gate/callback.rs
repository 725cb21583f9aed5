//! Callbacks: a host function that injected code called calls injected code, through the gate to the ifunc's side and back.
//!
//! The callback runs on the same stack, below the frames of the host's function. A panic in it escapes to the shim of the callback,
//! no further: the host's function gets "aborted" instead of a value and returns in its own way. Then the gate ends the invocation,
//! or the callback around it, for the same reason.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use ifunc::host::{CallBack, GateState};

use super::{Escape, Gate, HOST_STACK_ROOM, Noted, Side, current};

/// Stack that a callback must find below it. What it needs beyond is its own affair, as for any injected code.
const CALLBACK_STACK_ROOM: usize = 64 * 1024;
// Enough for a host function is enough for a callback: `GateState::enter_callback` asks for that.
const _: () = assert!(CALLBACK_STACK_ROOM <= HOST_STACK_ROOM);
/// Bytes between a callback's frames and those of the function that copies what it left on the stack.
const GAP: usize = 2048;
/// Most words that are kept of a callback's stack for a backtrace.
const MAX_TRAIL: usize = 8192;

unsafe extern "C" {
    /// Calls `call(data)` on the current stack. Returns 0, and 1 after an escape.
    fn ifunc_exec_call_back(
        data: *mut c_void,
        call: unsafe extern "C" fn(*mut c_void),
        gate: *const c_void,
    ) -> u32;
}

impl Gate {
    /// Whether the invocation ends when the host's function returns.
    #[inline]
    pub(super) fn is_aborted(&self) -> bool {
        self.state.is(Side::HostAborted)
    }

    /// Ends the invocation, or the callback that it is in: a callback ended it, whose reason is kept, or its time is over.
    ///
    /// # Safety
    /// As for [`escape`](Self::escape), on the host's side.
    #[cold]
    pub(super) unsafe fn escape_further(&self) -> ! {
        self.note(Noted::Overdue);
        // SAFETY: the caller's promise.
        unsafe { self.escape() }
    }

    /// Calls injected code from a function of the host that injected code called.
    ///
    /// # Safety
    /// As for [`CallGate::call_back`](ifunc::host::CallGate::call_back), on the thread of an invocation of this gate that is on the host's side.
    unsafe fn call_back(&self, call: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> CallBack {
        if self.is_aborted() {
            return CallBack::Aborted;
        }
        let here = &raw const data as usize;
        if here < self.stack_low + CALLBACK_STACK_ROOM {
            self.note(Noted::StackLow);
            self.state.set(Side::HostAborted);
            return CallBack::Aborted;
        }
        self.state.set(Side::Ifunc);
        // SAFETY: the caller's promise, and the gate is on the ifunc's side.
        match unsafe { self.run(call, data, |state| state.set(Side::Host)) } {
            0 => CallBack::Returned,
            _ => self.abort(),
        }
    }

    /// Calls `call(data)` from the ifunc's side, where the gate is, and then leaves that. Returns 0 unless the callback ended early. Then the
    /// frames of the caller's next calls do not lie where the callback's did, which are copied for a backtrace.
    ///
    /// # Safety
    /// As for [`call_back`](Self::call_back).
    #[inline(never)]
    unsafe fn run(
        &self,
        call: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        leave: impl FnOnce(&GateState),
    ) -> u32 {
        let gap = MaybeUninit::<[u8; GAP]>::uninit();
        std::hint::black_box(&gap);
        // SAFETY: the caller's promise; the shim returns to this frame, from the call or from an escape, whose frames own
        // nothing. Meanwhile `saved_sp` names the shim's frame, which is above those.
        unsafe {
            let outer = *self.saved_sp.get();
            let code = ifunc_exec_call_back(data, call, (&raw const *self).cast());
            leave(&self.state);
            *self.saved_sp.get() = outer;
            code
        }
    }

    /// A callback ended early.
    #[cold]
    fn abort(&self) -> CallBack {
        self.state.set(Side::HostAborted);
        self.keep_trail();
        CallBack::Aborted
    }

    /// Copies what a callback that ended early left on the stack, before the host's function overwrites it.
    #[cold]
    fn keep_trail(&self) {
        let range = self.stack();
        // SAFETY: no injected code runs until the reason is put back.
        let Some(mut escape) = (unsafe { self.take_escape() }) else {
            return;
        };
        let (stack, trail) = match &mut *escape {
            Escape::Panic { stack, trail, .. } => (*stack, trail),
            Escape::Interrupted { at, trail } => (at.stack.next_multiple_of(align_of::<usize>()), trail),
            _ => return self.explain(*escape),
        };
        // The reason of a callback in a callback has its words already.
        if trail.is_empty() && range.contains(&stack) && stack.is_multiple_of(align_of::<usize>()) {
            let words = (stack..range.end).step_by(size_of::<usize>());
            // SAFETY: aligned and within the usable part of a mapped stack, of which this thread alone runs a part.
            let read = |at| unsafe { std::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
            trail.extend(words.take(MAX_TRAIL).map(read));
        }
        self.explain(*escape);
    }
}

/// # Safety
/// As for [`CallGate::call_back`](ifunc::host::CallGate::call_back).
pub(super) unsafe fn call_back(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> CallBack {
    let state = GateState::current_raw();
    // SAFETY: the state of the gate of a living `Session` of this thread, or that of none.
    if unsafe { !(*state).enter_callback() } {
        // SAFETY: the caller's promise.
        return unsafe { call_back_slow(call, data) };
    }
    // SAFETY: the stack is that of the state's gate, so that is a session's, whose address the state has: it is the first field.
    let gate = unsafe { &*state.cast::<Gate>() };
    // SAFETY: the caller's promise, and the gate is on the ifunc's side.
    match unsafe { gate.run(call, data, GateState::leave_callback) } {
        0 => CallBack::Returned,
        _ => gate.abort(),
    }
}

/// A callback with less stack than a host function needs, in an invocation that sets the control of floats or that ends, or in none.
///
/// # Safety
/// As for [`call_back`].
#[cold]
#[inline(never)]
unsafe fn call_back_slow(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> CallBack {
    // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
    let gate = unsafe { current().as_ref() };
    match gate.filter(|gate| gate.is_in_host()) {
        // SAFETY: the caller's promise.
        Some(gate) => unsafe { gate.call_back(call, data) },
        None => CallBack::NoInvocation,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use ifunc::host;

    use super::super::injected::{invoke, invoke_as, invoke_with_failing_callback};
    use super::super::{CALL_GATE, escape_with_panic, escape_with_panic_at};
    use super::*;
    use crate::ExecThread;
    use crate::arch::testing::{AT_FIRST, TOWARDS_ZERO, round, rounding};

    /// As the shim of an exported function that calls `each` with numbers until it breaks. Returns how often it did.
    fn count(up_to: u32, mut each: impl FnMut(u32) -> u8) -> u32 {
        host::through_gate(move || {
            (0..up_to)
                .take_while(|&n| {
                    match host::call_back(|| each(n)) {
                        Some(0) => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                    .is_continue()
                })
                .count() as u32
        })
    }

    fn panics(message: &str) -> ! {
        // SAFETY: the frames of the tests' injected code own nothing.
        unsafe { escape_with_panic(message.as_bytes(), b"src/x.rs", 1, 2) }
    }

    fn message(outcome: Result<u32, Escape>) -> String {
        match outcome {
            Err(Escape::Panic { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    fn thread() -> ExecThread {
        ExecThread::for_tests(2 << 20)
    }

    #[test]
    fn a_callback_runs_on_the_ifuncs_side_and_returns_to_the_host() {
        let mut thread = thread();
        let mut sides = Vec::new();
        let outcome = invoke(&mut thread, || {
            // SAFETY: set by the session.
            let is_ifunc = || unsafe { (*current()).state.is(Side::Ifunc) };
            let n = count(10, |n| {
                sides.push(is_ifunc());
                u8::from(n == 3)
            });
            sides.push(is_ifunc());
            n
        });
        assert_eq!(outcome, Ok(3));
        assert_eq!(sides, [true; 5]);
    }

    /// What a callback makes of the control of floats, the host does not see if the image may set it. Otherwise nothing looks.
    #[test]
    fn a_callback_leaves_the_host_its_rounding() {
        let mut thread = thread();
        for (sets_float_control, ends_early) in [(true, false), (true, true), (false, false), (false, true)] {
            let (mut before, mut after) = (TOWARDS_ZERO, TOWARDS_ZERO);
            let outcome = invoke_as(&mut thread, sets_float_control, || {
                host::through_gate(|| {
                    before = rounding();
                    let returned = host::call_back(|| {
                        if sets_float_control {
                            round(TOWARDS_ZERO);
                        }
                        if ends_early {
                            panics("early");
                        }
                    });
                    assert_eq!(returned.is_some(), !ends_early);
                    after = rounding();
                });
                0
            });
            assert_eq!(outcome.is_ok(), !ends_early);
            assert_eq!((before, after, rounding()), (AT_FIRST, AT_FIRST, AT_FIRST));
        }
    }

    #[test]
    fn a_panic_in_a_callback_lets_the_host_finish_and_ends_the_invocation() {
        let mut thread = thread();
        for _ in 0..3 {
            let outcome = invoke_with_failing_callback(&mut thread, || panics("third"));
            assert_eq!(message(outcome), "third");
            // The next invocation knows nothing of it.
            assert_eq!(invoke(&mut thread, || count(2, |_| 0)), Ok(2));
        }
    }

    #[test]
    fn callbacks_nest_and_a_panic_passes_every_host_function() {
        let mut thread = thread();
        let mut log = Vec::new();
        let outcome = invoke(&mut thread, || {
            count(3, |outer| {
                let n = count(3, |inner| {
                    log.push((outer, inner));
                    if (outer, inner) == (1, 1) {
                        panics("deep");
                    }
                    0
                });
                log.push((outer, 100 + n));
                0
            })
        });
        assert_eq!(message(outcome), "deep");
        assert_eq!(log, [(0, 0), (0, 1), (0, 2), (0, 103), (1, 0), (1, 1)]);
    }

    #[test]
    fn a_host_panic_in_a_callbacks_import_ends_the_invocation_with_it() {
        let mut thread = thread();
        let outcome = invoke(&mut thread, || {
            count(3, |_| {
                host::through_gate(|| panic!("the disk is on fire"));
                0
            })
        });
        assert_eq!(outcome, Err(Escape::HostPanic("the disk is on fire".into())));
        // The first reason is the one that is reported.
        let outcome = invoke(&mut thread, || {
            host::through_gate(|| host::call_back(|| panics("first")).expect("second"));
            0
        });
        assert_eq!(message(outcome), "first");
    }

    #[test]
    fn what_a_callback_left_on_the_stack_is_kept() {
        let mut thread = thread();
        let outcome = invoke_with_failing_callback(&mut thread, || {
            let words = std::hint::black_box([0x1234_usize, 0x5678]);
            // SAFETY: the frames of the tests' injected code own nothing.
            unsafe { escape_with_panic_at(words.as_ptr().addr(), b"third", b"", 1, 2) }
        });
        let Err(Escape::Panic { trail, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(trail[..2], [0x1234, 0x5678]);
    }

    #[test]
    fn too_little_stack_for_a_callback_ends_the_invocation() {
        let mut thread = thread();
        let outcome = invoke(&mut thread, || {
            fn down(n: usize) -> usize {
                let room = std::hint::black_box([n as u8; 16 * 1024]);
                match host::call_back(|| {}) {
                    Some(()) => down(n + 1) + room[7] as usize,
                    None => n,
                }
            }
            host::through_gate(|| down(0) as u32)
        });
        assert_eq!(outcome, Err(Escape::StackLow));
    }

    #[test]
    fn without_an_invocation_the_callback_is_a_call() {
        // SAFETY: the functions of this gate do what its fields say.
        unsafe { host::set_call_gate(&CALL_GATE) };
        assert_eq!(host::call_back(|| 5), Some(5));
        assert!(std::panic::catch_unwind(|| host::call_back(|| panic!("up"))).is_err());
    }
}
