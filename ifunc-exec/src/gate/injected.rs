//! What stands for injected code in tests: closures behind the gate.

use std::ffi::c_void;

use ifunc::host;
use ifunc_abi::context::Context;

use super::{CALL_GATE, Escape};
use crate::ExecThread;
use crate::entrance::Entrance;

type Body<'a> = &'a mut dyn FnMut() -> u32;

/// An entry that runs the closure that its target arguments point to.
unsafe extern "C" fn run_body(_: *const u8, _: usize, target: *mut c_void, _: *mut Context) -> u32 {
    // SAFETY: `invoke` passes a closure.
    unsafe { (*target.cast::<Body<'_>>())() }
}

/// Runs `body` as injected code that does not set the control of floats.
pub(super) fn invoke(thread: &mut ExecThread, body: impl FnMut() -> u32) -> Result<u32, Escape> {
    invoke_as(thread, false, body)
}

/// Runs `body` as injected code that may set the control of floats, or not.
pub(super) fn invoke_as(
    thread: &mut ExecThread,
    sets_float_control: bool,
    mut body: impl FnMut() -> u32,
) -> Result<u32, Escape> {
    // SAFETY: the functions of this gate do what its fields say.
    unsafe { host::set_call_gate(&CALL_GATE) };
    let mut body: Body<'_> = &mut body;
    let entrance = Entrance::new(run_body as *const c_void);
    entrance.set_float_control(sets_float_control);
    let mut session = thread.session();
    crate::contain::prepare_thread();
    // SAFETY: the entry takes these arguments.
    let code = unsafe {
        session.enter(
            &entrance,
            std::ptr::null(),
            0,
            (&raw mut body).cast(),
            std::ptr::null_mut(),
        )
    };
    session.take_escape().map_or(Ok(code), |escape| Err(*escape))
}

/// Runs a host function that calls back five times, of which the third call does not return by itself: it `fails`. Checks that
/// the host's function returns, drops what it owns, and learns that the third call and all later ones did not run to their end,
/// and that the injected code behind it does not run.
pub(super) fn invoke_with_failing_callback(thread: &mut ExecThread, fails: impl Fn()) -> Result<u32, Escape> {
    let (mut calls, mut dropped, mut after) = (0, 0, false);
    let outcome = invoke(thread, || {
        host::through_gate(|| {
            struct Owned<'a>(&'a mut i32);
            impl Drop for Owned<'_> {
                fn drop(&mut self) {
                    *self.0 += 1;
                }
            }
            let _owned = Owned(&mut dropped);
            for n in 0..5 {
                let returned = host::call_back(|| {
                    calls += 1;
                    if n == 2 {
                        fails();
                    }
                });
                assert_eq!(returned.is_some(), n < 2, "later calls do not run");
            }
        });
        after = true;
        0
    });
    assert_eq!((calls, dropped, after), (3, 1, false));
    outcome
}
