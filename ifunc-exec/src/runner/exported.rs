//! The target's side of a call of an exported function by an ifunc in a runner process.
//!
//! The buffer is the runner's, so that nothing in it is trusted: it is copied out first, and each length, text and boolean is checked.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::signature::{MAX_FLOATS, MAX_WORDS, Output, Param, Scalar, Signature, UNIT};
use crate::gate::panic_message;

/// An exported function that images of a tenant import.
#[derive(Debug)]
pub(crate) struct Import {
    pub(super) name: String,
    /// The canonical text of its signature.
    pub(super) text: String,
    pub(super) signature: Signature,
}

/// Why a function was not called, or did not return.
#[derive(Debug)]
pub(super) enum CallError {
    /// It panicked, or is not there any more.
    Panicked(String),
    /// The runner sent what it may not send.
    Breach(&'static str),
}

const SHORT: CallError = CallError::Breach("a call that is too short");

/// The target arguments of an invocation, for functions that take them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetPointer<'a> {
    pub(super) pointer: *mut c_void,
    /// The opaque type that they are.
    pub(super) text: &'a str,
    /// Several threads share them.
    pub(super) is_shared: bool,
}

/// Memory for a buffer, aligned for every type.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u128>);

impl Buffer {
    /// Of so many bytes, all zero; `None`: there is no memory.
    pub(super) fn new(len: usize) -> Option<Self> {
        let count = len.div_ceil(UNIT);
        let mut units = Vec::new();
        units.try_reserve_exact(count).ok()?;
        units.resize(count, 0);
        Some(Self(units))
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: each unit has so many initialised bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * UNIT) }
    }

    fn word(&mut self, at: usize) -> Option<u64> {
        let word = self.bytes().get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    fn set_word(&mut self, at: usize, word: u64) {
        self.bytes()[at..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// The address of so many bytes from an offset on.
    fn pointer(&mut self, at: usize, len: usize) -> Option<*mut u8> {
        self.bytes().get_mut(at..)?.get_mut(..len).map(<[u8]>::as_mut_ptr)
    }

    /// The address of what an argument refers to, which are so many bytes from an offset on; null, if it refers to nothing and may do so.
    fn referred(
        &mut self,
        at: usize,
        len: usize,
        is_there: bool,
        is_optional: bool,
    ) -> Result<*mut u8, CallError> {
        match (is_there, is_optional) {
            (true, _) => self.pointer(at, len).ok_or(SHORT),
            (false, true) => Ok(std::ptr::null_mut()),
            (false, false) => Err(CallError::Breach("a call without an argument that it needs")),
        }
    }
}

/// Arguments as C passes them.
struct Arguments {
    words: [u64; MAX_WORDS],
    word_count: usize,
    floats: [f64; MAX_FLOATS],
    float_count: usize,
}

impl Arguments {
    /// The signature says that there are not more.
    fn word(&mut self, word: u64) {
        self.words[self.word_count] = word;
        self.word_count += 1;
    }

    fn pointer(&mut self, pointer: *mut u8) {
        self.word(pointer.expose_provenance() as u64);
    }

    fn float(&mut self, bits: u64) {
        self.floats[self.float_count] = f64::from_bits(bits);
        self.float_count += 1;
    }
}

/// Calls the function at `address` with the arguments in a buffer, and leaves there what it returns and changes.
///
/// # Safety
/// The function is what `#[ifunc::export]` makes of this signature. The target arguments are of the opaque type that their text names,
/// or of the host type whose method the function is; they are valid for a `&mut`, or for a `&` if they are shared.
///
/// # Errors
/// It panicked, or the buffer is not one of such a call.
pub(super) unsafe fn call(
    import: &Import,
    address: usize,
    buffer: &mut Buffer,
    target: Option<TargetPointer<'_>>,
) -> Result<(), CallError> {
    let breach = CallError::Breach;
    let signature = &import.signature;
    let mut arguments = Arguments {
        words: [0; MAX_WORDS],
        word_count: 0,
        floats: [0.0; MAX_FLOATS],
        float_count: 0,
    };
    let mut place = signature.first();
    for param in &signature.params {
        let first = buffer.word(place.head).ok_or(SHORT)?;
        let second = buffer.word(place.head + 8).ok_or(SHORT)?;
        let mut len = 0;
        match param {
            Param::Value(Scalar::Float) => arguments.float(first),
            Param::Value(scalar) => arguments.word(scalar.extended(first)),
            Param::Pointer {
                size, is_optional, ..
            } => {
                let is_there = first != 0;
                len = if is_there { *size } else { 0 };
                arguments.pointer(buffer.referred(place.bytes, len, is_there, *is_optional)?);
            }
            Param::Slice {
                size,
                is_str,
                is_optional,
                ..
            } => {
                // The address of a slice without elements may be any.
                let is_there = first != 0 || !is_optional && second == 0;
                let count = if is_there { second } else { 0 };
                let bytes = usize::try_from(count)
                    .ok()
                    .and_then(|count| count.checked_mul(*size));
                len = bytes.ok_or(SHORT)?;
                let pointer = buffer.referred(place.bytes, len, is_there, *is_optional)?;
                if *is_str && str::from_utf8(&buffer.bytes()[place.bytes..][..len]).is_err() {
                    return Err(breach("a text that is not UTF-8"));
                }
                arguments.pointer(pointer);
                arguments.word(count);
            }
            Param::Target { text, is_mutable } => {
                let is_of_type =
                    |target: &TargetPointer<'_>| text.as_ref().is_none_or(|text| text == target.text);
                let Some(target) = target.filter(is_of_type) else {
                    let name = &import.name;
                    return Err(CallError::Panicked(format!(
                        "`{name}` takes another type than this target serves, and from a runner process no other object crosses"
                    )));
                };
                if *is_mutable && target.is_shared {
                    return Err(breach(
                        "a call that takes shared target arguments for itself alone",
                    ));
                }
                arguments.word(target.pointer.expose_provenance() as u64);
            }
        }
        place = Signature::after(place, len).ok_or(SHORT)?;
    }
    if let Output::Out(size @ 1..) = signature.output {
        let pointer = buffer.pointer(UNIT, size);
        arguments.pointer(pointer.ok_or(SHORT)?);
    }
    let called = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise; every argument was checked above, and pointers are into the buffer, which is aligned for every
        // type and not used otherwise during the call.
        unsafe { invoke(address, &arguments, signature.output == Output::Float) }
    }));
    match called {
        Ok(result) => {
            buffer.set_word(0, result);
            Ok(())
        }
        Err(payload) => {
            let message = panic_message(&*payload);
            forget(payload);
            Err(CallError::Panicked(message))
        }
    }
}

/// The drop of a payload may panic itself.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}

/// Passes the same arguments to every function: the psABI of x86-64 passes the first six words and eight floats in registers and the
/// other words on the stack, which the caller frees, so a function finds those that it has, and ignores the others.
///
/// # Safety
/// The address is that of a function that takes these arguments, and returns a float or at most a word.
unsafe fn invoke(address: usize, arguments: &Arguments, returns_float: bool) -> u64 {
    type Function<R> = unsafe extern "C-unwind" fn(
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
    ) -> R;
    let pointer = std::ptr::with_exposed_provenance::<()>(address);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = arguments.words;
    let [s, t, u, v, w, x, y, z] = arguments.floats;
    // SAFETY: the caller's promise, and the psABI.
    unsafe {
        if returns_float {
            let function = std::mem::transmute::<*const (), Function<f64>>(pointer);
            return function(a, b, c, d, e, f, s, t, u, v, w, x, y, z, g, h, i, j, k, l, m, n).to_bits();
        }
        let function = std::mem::transmute::<*const (), Function<u64>>(pointer);
        function(a, b, c, d, e, f, s, t, u, v, w, x, y, z, g, h, i, j, k, l, m, n)
    }
}

#[cfg(test)]
mod tests {
    use ifunc::Opaque;
    use ifunc::host::EXPORTS;

    use super::*;

    #[derive(Opaque)]
    #[opaque("runner-store/1")]
    struct Store(u64);

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
            let called = unsafe { call(&import, address, &mut buffer, Some(target)) };
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
        unsafe { call(&import, address, &mut buffer, None) }.unwrap();
        assert_eq!(f32::from_bits(buffer.word(0).unwrap() as u32), 4.5);
    }
}
