//! The buffer in which a call crosses, on the side that receives it: its arguments as C passes them, and the call itself.

use super::signature::{MAX_FLOATS, MAX_WORDS, Param, Scalar, Signature, UNIT};

/// Why a function was not called, or did not return.
#[derive(Debug)]
pub(super) enum CallError {
    /// It panicked, or is not there any more.
    Panicked(String),
    /// The other side sent what it may not send.
    Breach(&'static str),
}

const SHORT: CallError = CallError::Breach("a call that is too short");

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

    pub(super) fn word(&mut self, at: usize) -> Option<u64> {
        let word = self.bytes().get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }

    /// Replaces a word that is there.
    pub(super) fn set_word(&mut self, at: usize, word: u64) {
        self.bytes()[at..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// The address of so many bytes from an offset on.
    fn pointer(&mut self, at: usize, len: usize) -> Result<*mut u8, CallError> {
        let bytes = self.bytes().get_mut(at..).and_then(|rest| rest.get_mut(..len));
        bytes.map(<[u8]>::as_mut_ptr).ok_or(SHORT)
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
            (true, _) => self.pointer(at, len),
            (false, true) => Ok(std::ptr::null_mut()),
            (false, false) => Err(CallError::Breach("a call without an argument that it needs")),
        }
    }
}

/// Arguments as C passes them: those in general-purpose registers or on the stack, and those in floating-point registers.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    words: [u64; MAX_WORDS],
    word_count: usize,
    floats: [f64; MAX_FLOATS],
    float_count: usize,
}

impl Arguments {
    /// The signature says that there are not more.
    pub(super) fn word(&mut self, word: u64) {
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

    /// Adds the arguments in a buffer, and the out pointer. Every length, text and boolean is checked: the buffer is the other side's. What
    /// stands for something in this process, `with` adds: it is given the number of the parameter, the parameter and its words.
    ///
    /// # Errors
    /// The buffer is not one of such a call, or `with` refuses it.
    pub(super) fn add<'s>(
        &mut self,
        signature: &'s Signature,
        buffer: &mut Buffer,
        mut with: impl FnMut(&mut Self, usize, &'s Param, [u64; 2]) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let mut place = signature.first();
        for (number, param) in signature.params.iter().enumerate() {
            let first = buffer.word(place.head).ok_or(SHORT)?;
            let second = buffer.word(place.head + 8).ok_or(SHORT)?;
            let mut len = 0;
            match param {
                Param::Value(Scalar::Float(_)) => self.float(first),
                Param::Value(scalar) => self.word(scalar.extended(first)),
                Param::Pointer {
                    size, is_optional, ..
                } => {
                    let is_there = first != 0;
                    len = if is_there { *size } else { 0 };
                    self.pointer(buffer.referred(place.bytes, len, is_there, *is_optional)?);
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
                        return Err(CallError::Breach("a text that is not UTF-8"));
                    }
                    self.pointer(pointer);
                    self.word(count);
                }
                Param::Target { .. } | Param::Owned(_) | Param::Callback(_) => {
                    with(self, number, param, [first, second])?;
                }
            }
            place = Signature::after(place, len).ok_or(SHORT)?;
        }
        match signature.output.out_len() {
            0 => {}
            len => self.pointer(buffer.pointer(UNIT, len)?),
        }
        Ok(())
    }

    /// Calls a function. The same arguments are passed to every one: the psABIs pass the first words (x86-64: six, AArch64: eight) and eight
    /// floats in registers and the other words on the stack, which the caller frees, so a function finds those that it has, and ignores the
    /// others.
    ///
    /// # Safety
    /// The address is that of a function that may be called with these arguments, and that returns a float or at most a word.
    pub(super) unsafe fn call(&self, address: usize, returns_float: bool) -> u64 {
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
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = self.words;
        let [s, t, u, v, w, x, y, z] = self.floats;
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
}
