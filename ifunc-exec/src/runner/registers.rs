//! The side that calls: what a C function was called with, into a buffer, and back what the other side changed.

use std::mem::offset_of;

use super::segment::{Area, CALL, Segment};
use super::signature::{MAX_PARAMS, Param, Place, Scalar, Signature, UNIT};
use crate::arch::ARGUMENT_WORDS;

/// Where the arguments of a call are.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Registers {
    words: [u64; ARGUMENT_WORDS],
    floats: [u64; 8],
    /// Arguments beyond those.
    stack: *const u64,
    /// The result, if it is a float.
    pub(super) float: u64,
}

impl Registers {
    /// The first argument.
    pub(super) fn first(&self) -> u64 {
        self.words[0]
    }
}

// What the assembly of `function_of_any_signature` lays out.
const _: () = assert!(
    offset_of!(Registers, stack) == 8 * (ARGUMENT_WORDS + 8) && size_of::<Registers>().is_multiple_of(16)
);

/// The arguments of a call, in the order of the signature.
#[derive(Debug)]
pub(super) struct Passed<'a> {
    signature: &'a Signature,
    /// One word for each parameter, and for a slice or a callback a second one.
    values: [[u64; 2]; MAX_PARAMS],
    out: *mut u8,
}

/// The arguments are longer than the area in which they cross.
pub(super) const TOO_LONG: &str = "the arguments of the call are longer than what crosses to another process";

impl<'a> Passed<'a> {
    /// Of a function of this signature that has so many words before its arguments.
    ///
    /// # Safety
    /// The registers are those of a call of such a function.
    pub(super) unsafe fn of(registers: &Registers, signature: &'a Signature, before: usize) -> Self {
        let (mut words, mut floats) = (before, 0);
        let mut word = || {
            let at = words;
            words += 1;
            match registers.words.get(at) {
                Some(word) => *word,
                // SAFETY: the caller pushed the words that are in no register.
                None => unsafe { registers.stack.add(at - registers.words.len()).read() },
            }
        };
        let mut values = [[0; 2]; MAX_PARAMS];
        for (param, value) in signature.params.iter().zip(&mut values) {
            *value = match param {
                // What is beside a narrow value in its register is the caller's, and does not cross.
                Param::Value(scalar @ Scalar::Float(_)) => {
                    floats += 1;
                    [scalar.extended(registers.floats[floats - 1]), 0]
                }
                Param::Value(scalar) => [scalar.extended(word()), 0],
                Param::Slice { .. } | Param::Callback(_) => [word(), word()],
                Param::Pointer { .. } | Param::Target { .. } | Param::Owned(_) => [word(), 0],
            };
        }
        let out = match signature.output.out_len() {
            0 => std::ptr::null_mut(),
            _ => std::ptr::with_exposed_provenance_mut(word() as usize),
        };
        Self {
            signature,
            values,
            out,
        }
    }

    /// The parameters that are objects of the host, and the words that stand for them.
    pub(super) fn objects(&mut self) -> impl Iterator<Item = (&'a Param, &mut u64)> {
        let params = self.signature.params.iter().zip(&mut self.values);
        params.filter_map(|(param, value)| match param {
            Param::Target { .. } | Param::Owned(_) => Some((param, &mut value[0])),
            _ => None,
        })
    }

    /// Calls with each parameter: its words in the buffer, the memory that it refers to and how many bytes that has, whether the function
    /// may change these, and its place. Returns the length of the buffer.
    ///
    /// # Errors
    /// It is too long.
    fn each(
        &self,
        mut with: impl FnMut([u64; 2], *mut u8, usize, bool, Place),
    ) -> Result<usize, &'static str> {
        let mut place = self.signature.first();
        for (param, [first, second]) in self.signature.params.iter().zip(&self.values) {
            let pointer = std::ptr::with_exposed_provenance_mut(*first as usize);
            let is_there = u64::from(*first != 0);
            let (words, len, is_mutable) = match param {
                Param::Value(_) | Param::Target { .. } | Param::Owned(_) | Param::Callback(_) => {
                    ([*first, *second], 0, false)
                }
                Param::Pointer { size, is_mutable, .. } => ([is_there, 0], *size, *is_mutable),
                Param::Slice { size, is_mutable, .. } => {
                    let len = (*second as usize).checked_mul(*size).ok_or(TOO_LONG)?;
                    ([is_there, *second], len, *is_mutable)
                }
            };
            let refers = matches!(param, Param::Pointer { .. } | Param::Slice { .. });
            let len = if refers && is_there == 1 { len } else { 0 };
            let next = Signature::after(place, len).filter(|next| next.head <= CALL);
            with(words, pointer, len, is_mutable, place);
            place = next.ok_or(TOO_LONG)?;
        }
        Ok(place.head)
    }

    /// Writes the buffer of the call, and returns its length.
    ///
    /// # Safety
    /// What the arguments refer to is there, as the signature says.
    ///
    /// # Errors
    /// It is too long. Then nothing was written.
    pub(super) unsafe fn write(&self, segment: &Segment) -> Result<usize, &'static str> {
        // Before anything is copied: the length is known.
        let len = self.each(|_, _, _, _, _| {})?;
        self.each(|words, pointer, len, _, place| {
            let mut head = [0; UNIT];
            head[..8].copy_from_slice(&words[0].to_le_bytes());
            head[8..].copy_from_slice(&words[1].to_le_bytes());
            segment.write(Area::Call, place.head, &head);
            // SAFETY: the caller's promise; the buffer fits.
            unsafe { segment.write_from(Area::Call, place.bytes, pointer, len) };
        })?;
        Ok(len)
    }

    /// Reads what the other side left in the buffer into what the function may change, and returns its result.
    ///
    /// # Safety
    /// As for [`write`](Self::write), which wrote the buffer; every content of what the function may change is a value.
    pub(super) unsafe fn read(&self, segment: &Segment) -> u64 {
        // Its length was checked before it was written.
        let _ = self.each(|_, pointer, len, is_mutable, place| {
            if is_mutable {
                // SAFETY: the caller's promise; the buffer fits.
                unsafe { segment.read_to(Area::Call, place.bytes, pointer, len) };
            }
        });
        let out = self.signature.output.out_len();
        if !self.out.is_null() {
            // SAFETY: as above: the out pointer is to so many bytes.
            unsafe { segment.read_to(Area::Call, UNIT, self.out, out) };
        }
        let mut result = [0; 8];
        segment.read(Area::Call, &mut result);
        u64::from_le_bytes(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers and stack hold more than narrow values, and what else is there is the caller's.
    #[test]
    fn what_lies_beside_a_narrow_value_does_not_cross() {
        let signature = Signature::of("fn f(u8,i16,bool,f32,u32,f64,u64,i32,u64,u64,i8)").unwrap();
        let dirty = 0xdead_beef_dead_0000_u64;
        let words = [
            dirty | 0xff05,
            dirty | 0x8001,
            dirty | 0x7700,
            0xdead_beef_8000_0001,
            u64::MAX,
            0xdead_beef_8000_0000,
            3,
            4,
            dirty | 0x80,
        ];
        let (in_registers, stack) = words.split_first_chunk().unwrap();
        let registers = Registers {
            words: *in_registers,
            floats: [
                0xdead_beef_0000_0000 | u64::from(1.5_f32.to_bits()),
                2.5_f64.to_bits(),
                7,
                7,
                7,
                7,
                7,
                7,
            ],
            stack: stack.as_ptr(),
            float: 0,
        };
        // SAFETY: the arguments are those of such a function, the last ones on the stack.
        let passed = unsafe { Passed::of(&registers, &signature, 0) };
        let expected = [
            5,
            0xffff_ffff_ffff_8001,
            0,
            u64::from(1.5_f32.to_bits()),
            0x8000_0001,
            2.5_f64.to_bits(),
            u64::MAX,
            0xffff_ffff_8000_0000,
            3,
            4,
            0xffff_ffff_ffff_ff80,
        ];
        assert_eq!(passed.values[..11], expected.map(|word| [word, 0]));
    }
}
