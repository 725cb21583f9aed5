//! The target's side of a call of an exported function by an ifunc in a runner process.
//!
//! The buffer is the runner's, so that nothing in it is trusted: it was copied out first, and each length, text, boolean and object is
//! checked.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::buffer::{Arguments, Buffer, CallError};
use super::callback::{Ifunc, NotReturned, RunningCall};
use super::objects::{Borrowed, Objects, TOO_MANY};
use super::signature::{Output, Param, Signature, UNIT};
use crate::gate::panic_message;
use crate::held::discard;

/// An exported function that images of a tenant import.
#[derive(Debug)]
pub(crate) struct Import {
    pub(super) name: String,
    /// The canonical text of its signature.
    pub(super) text: String,
    pub(super) signature: Signature,
}

/// A function that is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function<'a> {
    pub(super) import: &'a Import,
    /// By which the runner knows it.
    pub(super) number: u64,
    pub(super) address: usize,
}

/// Calls a function with the arguments in a buffer, and leaves there what it returns and changes.
///
/// # Safety
/// The function is what `#[ifunc::export]` makes of this signature. The target arguments are of the opaque type that their text names,
/// or of the host type whose method the function is; they are valid for a `&mut`, or for a `&` if they are shared.
///
/// # Errors
/// It panicked, or the buffer is not one of such a call.
pub(super) unsafe fn call(
    function: Function<'_>,
    buffer: &mut Buffer,
    objects: &Objects<'_>,
    ifunc: &dyn Ifunc,
) -> Result<(), CallError> {
    let signature = &function.import.signature;
    let output = &signature.output;
    if output.is_object() && !objects.has_room(false) {
        return Err(CallError::Panicked(TOO_MANY.into()));
    }
    let mut borrowed = Borrowed::new(objects);
    let mut running = RunningCall::new(function.number, ifunc, objects);
    let mut arguments = Arguments::default();
    arguments.add(signature, buffer, |arguments, number, param, words| {
        match param {
            Param::Target { text, is_mutable } => {
                let pointer = objects.borrow(words[0], text.as_deref(), *is_mutable, &mut borrowed);
                let pointer = pointer.map_err(|error| match error {
                    CallError::Panicked(why) => {
                        CallError::Panicked(format!("`{}` {why}", function.import.name))
                    }
                    breach @ CallError::Breach(_) => breach,
                })?;
                arguments.word(pointer.expose_provenance() as u64);
            }
            Param::Owned(text) => {
                let pointer = objects.take(words[0], text.as_deref())?;
                arguments.word(pointer.expose_provenance() as u64);
            }
            Param::Callback(callback) => {
                for word in running.add(number, callback, words) {
                    arguments.word(word);
                }
            }
            Param::Value(_) | Param::Pointer { .. } | Param::Slice { .. } => {}
        }
        Ok(())
    })?;
    let called = catch_unwind(AssertUnwindSafe(|| {
        let returns_float = matches!(output, Output::Float(_));
        // SAFETY: the caller's promise; every argument was checked above, and pointers are into the buffer, which is aligned for every
        // type and not used otherwise during the call.
        running.run(|| unsafe { arguments.call(function.address, returns_float) })
    }));
    let called = called.map_err(|payload| {
        let message = panic_message(&*payload);
        forget(payload);
        message
    });
    // The first reason is the one that is reported.
    let refused = match running.stopped() {
        Some(NotReturned::NotCalled(why)) => Some(why),
        _ => None,
    };
    let object = |word: u64| std::ptr::with_exposed_provenance_mut(word as usize);
    let given = |pointer: u64, text: &str| match refused {
        None => objects.give(object(pointer), text),
        Some(_) => {
            discard(object(pointer));
            0
        }
    };
    if let Ok(register) = called {
        let mut result = output.result(register);
        match output {
            Output::Owned(text) => result = given(result, text),
            Output::OutOwned { text, .. } if output.has_written(result) => {
                let pointer = buffer.word(UNIT).unwrap_or_default();
                buffer.set_word(UNIT, given(pointer, text));
            }
            _ => {}
        }
        buffer.set_word(0, result);
    }
    match (refused, called) {
        (Some(why), _) => Err(CallError::Panicked(why.into())),
        (None, Err(message)) => Err(CallError::Panicked(message)),
        (None, Ok(_)) => Ok(()),
    }
}

/// The drop of a payload may panic itself.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use ifunc::Opaque;
    use ifunc::host::EXPORTS;

    use super::super::callback::Callback;
    use super::super::objects::TargetPointer;
    use super::super::registers::Passed;
    use super::*;

    #[derive(Opaque)]
    #[opaque("runner-store/1")]
    struct Store(u64);

    /// No function is called with a callback.
    struct NoCallbacks;

    impl Ifunc for NoCallbacks {
        unsafe fn call_back(&self, callback: &Callback<'_>, _: &Passed<'_>) -> Result<u64, NotReturned> {
            panic!("{callback:?}")
        }
    }

    /// # Safety
    /// As for [`call`](super::call).
    unsafe fn call_with(
        (import, address): (&Import, usize),
        buffer: &mut Buffer,
        target: Option<TargetPointer<'_>>,
    ) -> Result<(), CallError> {
        let function = Function {
            import,
            number: 0,
            address,
        };
        let last = AtomicU64::new(0);
        let objects = Objects::new(target, &last);
        // SAFETY: the caller's promise.
        unsafe { call(function, buffer, &objects, &NoCallbacks) }
    }

    #[expect(clippy::too_many_arguments, reason = "one of each kind")]
    #[ifunc::export]
    fn every_kind(
        store: &mut Store,
        text: &str,
        small: i8,
        scale: f32,
        numbers: &mut [u16],
        none: Option<&u64>,
        flag: bool,
        last: Option<u32>,
    ) -> Result<f64, i32> {
        assert!(none.is_none() && flag, "the flag is set");
        numbers.reverse();
        store.0 += text.len() as u64;
        let sum: u16 = numbers.iter().sum();
        Ok(f64::from(small) * f64::from(scale) + f64::from(sum) + f64::from(last.unwrap()))
    }

    #[ifunc::export]
    fn halved(value: f32) -> f32 {
        value / 2.0
    }

    fn import(name: &str) -> (Import, usize) {
        let export = EXPORTS.iter().find(|export| export.name() == name).unwrap();
        let text = export.signature();
        let import = Import {
            name: name.into(),
            text: text.into(),
            signature: Signature::of(text).unwrap(),
        };
        (import, export.address().expose_provenance())
    }

    /// A buffer of units: two words, or sixteen bytes.
    fn buffer(units: &[[u64; 2]]) -> Buffer {
        let mut buffer = Buffer::new(units.len() * UNIT).unwrap();
        for (at, unit) in units.iter().enumerate() {
            buffer.set_word(at * UNIT, unit[0]);
            buffer.set_word(at * UNIT + 8, unit[1]);
        }
        buffer
    }

    fn units() -> [[u64; 2]; 13] {
        [
            [0, 0],
            [0, 0],
            [7, 7], // the store
            [1, 4],
            [u64::from_le_bytes(*b"text\0\0\0\0"), 0],
            [0xffff_fffe, 0],
            [u64::from(1.5_f32.to_bits()), 0],
            [1, 3],
            [u64::from_le_bytes([1, 0, 2, 0, 3, 0, 0, 0]), 0],
            [0, 0],
            [0xff, 0],
            [1, 0],
            [1000, 0],
        ]
    }

    #[test]
    fn a_function_gets_what_the_buffer_says() {
        let (import, address) = import("every_kind");
        let mut store = Store(5);
        let mut target = TargetPointer {
            pointer: (&raw mut store).cast(),
            text: "opaque runner-store/1",
            is_shared: false,
        };
        let call = |units: &[[u64; 2]], target| {
            let mut buffer = buffer(units);
            // SAFETY: the export has this signature, and the pointer is to the store.
            let called = unsafe { call_with((&import, address), &mut buffer, Some(target)) };
            called.map(|()| buffer)
        };
        let mut done = call(&units(), target).unwrap();
        assert_eq!(done.word(0).unwrap() as u32, 0);
        assert_eq!(f64::from_bits(done.word(16).unwrap()), -3.0 + 6.0 + 1000.0);
        assert_eq!(done.bytes()[8 * UNIT..][..6], [3, 0, 2, 0, 1, 0]);
        // A panic of the host.
        let mut unset = units();
        unset[10] = [0, 0];
        let Err(CallError::Panicked(message)) = call(&unset, target) else {
            panic!("it panics");
        };
        assert!(message.contains("the flag is set"), "{message}");
        // What a hostile runner sends.
        let breach = |change: &dyn Fn(&mut [[u64; 2]; 13])| {
            let mut units = units();
            change(&mut units);
            match call(&units, target) {
                Err(CallError::Breach(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            breach(&|units| units[4][0] = u64::MAX),
            "a text that is not UTF-8"
        );
        assert_eq!(
            breach(&|units| units[3][1] = u64::MAX),
            "a call that is too short"
        );
        assert_eq!(breach(&|units| units[7][1] = 1 << 62), "a call that is too short");
        assert_eq!(breach(&|units| units[7][1] = 4000), "a call that is too short");
        assert_eq!(
            breach(&|units| units[7][0] = 0),
            "a call without an argument that it needs"
        );
        let Err(CallError::Breach(_)) = call(&units()[..12], target) else {
            panic!("it is too short");
        };
        target.is_shared = true;
        assert!(matches!(call(&units(), target), Err(CallError::Breach(_))));
        (target.is_shared, target.text) = (false, "opaque other");
        assert!(matches!(call(&units(), target), Err(CallError::Panicked(_))));
        assert_eq!(store.0, 5 + 4);
    }

    #[test]
    fn floats_come_back() {
        let (import, address) = import("halved");
        let mut buffer = buffer(&[[0, 0], [u64::from(9.0_f32.to_bits()), 0]]);
        // SAFETY: the export has this signature, and takes no target arguments.
        unsafe { call_with((&import, address), &mut buffer, None) }.unwrap();
        assert_eq!(buffer.word(0), Some(4.5_f32.to_bits().into()));
    }
}
