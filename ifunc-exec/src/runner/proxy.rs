//! The runner's side of functions of the host: what an image calls in their place, and callbacks.
//!
//! Each such function has a few instructions in code memory, which load its number and continue in `ifunc_runner_call`. That keeps the
//! registers with arguments, and calls [`call`], which copies what the arguments refer to into a buffer, sends it to the target, and
//! copies back what the host's function changed. Until then the host's function may call what it was passed: such a callback passes the
//! gate, to the ifunc's side and back, as it would in the target.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::buffer::{Arguments, Buffer};
use super::port::Waited;
use super::registers::{Passed, Registers};
use super::segment::{Area, Kind, Message, Segment};
use super::serve::with_port;
use super::signature::{Param, Signature};
use crate::arch::{forwarding_function, function_of_any_signature};

thread_local! {
    static SIGNATURES: RefCell<HashMap<u32, Rc<Signature>>> = RefCell::default();
}

/// Lets images call the function of this number.
pub(super) fn add(number: u32, signature: Signature) {
    SIGNATURES.with_borrow_mut(|all| all.insert(number, Rc::new(signature)));
}

fn signature_of(number: u32) -> Option<Rc<Signature>> {
    SIGNATURES.with_borrow(|all| all.get(&number).map(Rc::clone))
}

/// The instructions of the function of this number.
pub(super) fn instructions(number: u32) -> Vec<u8> {
    forwarding_function(number, ifunc_runner_call as *const () as u64)
}

function_of_any_signature!(ifunc_runner_call, call);

/// What every function of the host is to an image: returns the word that it returns.
///
/// # Safety
/// The registers are those of a call of the function of this number, as its signature says.
unsafe extern "C-unwind" fn call(number: u32, registers: *mut Registers) -> u64 {
    // A panic here ends the invocation, as a panic of the host's function does.
    ifunc::host::through_gate(|| {
        let signature = signature_of(number).expect("a function that an image was bound to");
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut *registers };
        // SAFETY: as above.
        let outcome = unsafe { cross(number, &Passed::of(registers, &signature, 0)) };
        match outcome {
            Ok(result) => {
                registers.float = result;
                result
            }
            Err(why) => panic!("{why}"),
        }
    })
}

/// Sends a call to the target, runs its callbacks, and returns what the function returns.
///
/// # Safety
/// What the arguments refer to is there, as the signature says; callbacks are functions of theirs.
///
/// # Errors
/// Why the invocation ends.
unsafe fn cross(number: u32, passed: &Passed<'_>) -> Result<u64, String> {
    // The port is not borrowed while a callback runs: its functions of the host use it, too.
    let send = |message: &Message| with_port(|port| port.send(message));
    let segment = with_port(|port| port.segment).ok_or("this thread serves no target")?;
    // SAFETY: the caller's promise.
    let len = unsafe { passed.write(segment) }?;
    send(&Message::new(Kind::Call, [number.into(), len as u64]));
    let mut failed = None;
    loop {
        let Some(Waited::Received(Message { kind, words })) = with_port(|port| port.wait(None, None)) else {
            return Err("the target has gone".to_owned());
        };
        if kind != Kind::CallBack {
            break match (failed, words) {
                (Some(why), _) => Err(why),
                // SAFETY: as above.
                (None, [0, ..]) => Ok(unsafe { passed.read(segment) }),
                (None, [_, len, ..]) => Err(segment.note_text(len)),
            };
        }
        // SAFETY: the target sends what the ifunc passed; the caller's promise.
        let has_returned = unsafe { call_back(segment, words) }.unwrap_or_else(|why| {
            failed = Some(why.to_owned());
            false
        });
        send(&Message::new(Kind::CalledBack, [(!has_returned).into()]));
    }
}

/// Calls a function of the ifunc with the arguments in the call area, and leaves there what it returns and changes. Returns whether it
/// returned: if not, the gate knows why, and ends the invocation when the host's function has returned.
///
/// # Safety
/// The words are those of a [`Kind::CallBack`] of a call of this thread that has not returned.
///
/// # Errors
/// It was not called.
unsafe fn call_back(segment: &Segment, words: [u64; 6]) -> Result<bool, &'static str> {
    const NO_MEMORY: &str =
        "its runner process has no memory for the arguments of a callback; help: `RunnerOptions::memory`";
    const UNKNOWN: &str = "the target calls back what no ifunc passed";
    let [function, param, address, data, len, _] = words;
    let signature = u32::try_from(function)
        .ok()
        .and_then(signature_of)
        .ok_or(UNKNOWN)?;
    let Some(Param::Callback(callback)) = signature.params.get(param as usize) else {
        return Err(UNKNOWN);
    };
    let len = (len as usize).min(segment.len_of(Area::Call));
    let mut buffer = Buffer::new(len).ok_or(NO_MEMORY)?;
    segment.read(Area::Call, &mut buffer.bytes()[..len]);
    let mut arguments = Arguments::default();
    arguments.word(data);
    // Objects of the host are words here.
    let object = |arguments: &mut Arguments, _, _: &Param, [word, _]: [u64; 2]| {
        arguments.word(word);
        Ok(())
    };
    arguments
        .add(callback, &mut buffer, object)
        .map_err(|_| UNKNOWN)?;
    // The frames below own nothing: a callback that ends early is left by a jump.
    // SAFETY: the caller's promise: the ifunc passed this function with this data, and waits for the host's function. The arguments are
    // those of its signature.
    let result = ifunc::host::call_back(|| unsafe { arguments.call(address as usize, false) });
    let Some(register) = result else {
        return Ok(false);
    };
    buffer.set_word(0, callback.output.result(register));
    segment.write(Area::Call, 0, &buffer.bytes()[..len]);
    Ok(true)
}
