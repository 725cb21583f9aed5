//! The runner's side of functions of the host: what an image calls in their place.
//!
//! Each such function has a few instructions in code memory, which load its number and continue in `ifunc_runner_call`. That keeps the
//! registers with arguments, and calls [`call`], which copies what the arguments refer to into a buffer, sends it to the target, and
//! copies back what the host's function changed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::segment::{Area, Kind, Message};
use super::serve::with_port;
use super::signature::{Output, Param, Place, Scalar, Signature, UNIT};

thread_local! {
    static SIGNATURES: RefCell<HashMap<u32, Rc<Signature>>> = RefCell::default();
}

/// Lets images call the function of this number.
pub(super) fn add(number: u32, signature: Signature) {
    SIGNATURES.with_borrow_mut(|all| all.insert(number, Rc::new(signature)));
}

/// The instructions of the function of this number: `mov eax, NUMBER; movabs r11, ifunc_runner_call; jmp r11`.
pub(super) fn instructions(number: u32) -> Vec<u8> {
    let address = ifunc_runner_call as *const () as u64;
    let mut code = vec![0xb8];
    code.extend(number.to_le_bytes());
    code.extend([0x49, 0xbb]);
    code.extend(address.to_le_bytes());
    code.extend([0x41, 0xff, 0xe3]);
    code
}

unsafe extern "C" {
    fn ifunc_runner_call();
}

/// Where the arguments of a call are.
#[derive(Debug)]
#[repr(C)]
struct Registers {
    words: [u64; 6],
    floats: [u64; 8],
    /// Arguments beyond those.
    stack: *const u64,
    /// The result, if it is a float.
    float: u64,
}

core::arch::global_asm!(
    ".pushsection .text.ifunc_runner_call,\"ax\",@progbits",
    ".p2align 4",
    ".hidden ifunc_runner_call",
    ".globl ifunc_runner_call",
    ".type ifunc_runner_call,@function",
    "ifunc_runner_call:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 128",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "movsd [rsp + 48], xmm0",
    "movsd [rsp + 56], xmm1",
    "movsd [rsp + 64], xmm2",
    "movsd [rsp + 72], xmm3",
    "movsd [rsp + 80], xmm4",
    "movsd [rsp + 88], xmm5",
    "movsd [rsp + 96], xmm6",
    "movsd [rsp + 104], xmm7",
    "lea rcx, [rbp + 16]",
    "mov [rsp + 112], rcx",
    "mov edi, eax",
    "mov rsi, rsp",
    "call {call}",
    "movsd xmm0, [rsp + 120]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size ifunc_runner_call, .-ifunc_runner_call",
    ".popsection",
    call = sym call,
);

const _: () = assert!(size_of::<Registers>() == 128);

/// What every function of the host is to an image: returns the word that it returns.
///
/// # Safety
/// The registers are those of a call of the function of this number, as its signature says.
unsafe extern "C-unwind" fn call(number: u32, registers: *mut Registers) -> u64 {
    // A panic here ends the invocation, as a panic of the host's function does.
    ifunc::host::through_gate(|| {
        let signature = SIGNATURES.with_borrow(|all| all.get(&number).map(Rc::clone));
        let signature = signature.expect("a function that an image was bound to");
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut *registers };
        // SAFETY: as above.
        let outcome = unsafe { Arguments::of(registers, &signature).cross(number) };
        match outcome {
            Ok(result) => {
                registers.float = result;
                result
            }
            Err(why) => panic!("{why}"),
        }
    })
}

/// The arguments of a call, in the order of the signature.
struct Arguments<'a> {
    signature: &'a Signature,
    /// One word for each parameter, and for a slice its length.
    values: Vec<(u64, u64)>,
    out: *mut u8,
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// The registers are those of a call of such a function.
    unsafe fn of(registers: &Registers, signature: &'a Signature) -> Self {
        let (mut words, mut floats) = (0, 0);
        let mut word = || {
            let at = words;
            words += 1;
            match registers.words.get(at) {
                Some(word) => *word,
                // SAFETY: the caller pushed the words that are in no register.
                None => unsafe { registers.stack.add(at - registers.words.len()).read() },
            }
        };
        let mut values = Vec::with_capacity(signature.params.len());
        for param in &signature.params {
            values.push(match param {
                Param::Value(Scalar::Float) => {
                    floats += 1;
                    (registers.floats[floats - 1], 0)
                }
                Param::Slice { .. } => (word(), word()),
                Param::Value(_) | Param::Pointer { .. } | Param::Target { .. } => (word(), 0),
            });
        }
        let out = match signature.output {
            Output::Out(1..) => std::ptr::with_exposed_provenance_mut(word() as usize),
            _ => std::ptr::null_mut(),
        };
        Self {
            signature,
            values,
            out,
        }
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
        const TOO_LONG: &str = "the arguments of the call are longer than what crosses to the target";
        let mut place = self.signature.first();
        for (param, (first, second)) in self.signature.params.iter().zip(&self.values) {
            let pointer = std::ptr::with_exposed_provenance_mut(*first as usize);
            let is_there = u64::from(*first != 0);
            let (words, len, is_mutable) = match param {
                Param::Value(_) => ([*first, 0], 0, false),
                Param::Target { .. } => ([0, 0], 0, false),
                Param::Pointer { size, is_mutable, .. } => ([is_there, 0], *size, *is_mutable),
                Param::Slice { size, is_mutable, .. } => {
                    let len = (*second as usize).checked_mul(*size).ok_or(TOO_LONG)?;
                    ([is_there, *second], len, *is_mutable)
                }
            };
            let refers = matches!(param, Param::Pointer { .. } | Param::Slice { .. });
            let len = if refers && is_there == 1 { len } else { 0 };
            let next = Signature::after(place, len).filter(|next| next.head <= super::segment::CALL);
            with(words, pointer, len, is_mutable, place);
            place = next.ok_or(TOO_LONG)?;
        }
        Ok(place.head)
    }

    /// Sends the call to the target, and returns what the function returns.
    ///
    /// # Safety
    /// What the arguments refer to is there, as the signature says.
    unsafe fn cross(&self, number: u32) -> Result<u64, String> {
        // Before anything is copied: the length is known.
        let len = self.each(|_, _, _, _, _| {})?;
        with_port(|port| {
            let segment = port.segment;
            self.each(|words, pointer, len, _, place| {
                let mut head = [0; UNIT];
                head[..8].copy_from_slice(&words[0].to_le_bytes());
                head[8..].copy_from_slice(&words[1].to_le_bytes());
                segment.write(Area::Call, place.head, &head);
                // SAFETY: the caller's promise; the buffer fits.
                unsafe { segment.write_from(Area::Call, place.bytes, pointer, len) };
            })?;
            port.send(&Message::new(Kind::Call, [number.into(), len as u64]));
            let super::port::Waited::Received(message) = port.wait(None, None) else {
                return Err("the target has gone".to_owned());
            };
            if message.words[0] != 0 {
                return Err(segment.note_text(message.words[1]));
            }
            let area = segment.area(Area::Call);
            self.each(|_, pointer, len, is_mutable, place| {
                if is_mutable {
                    // SAFETY: as above, and the function may change it.
                    unsafe { std::ptr::copy_nonoverlapping(area.wrapping_add(place.bytes), pointer, len) };
                }
            })?;
            if let Output::Out(len @ 1..) = self.signature.output
                && !self.out.is_null()
            {
                // SAFETY: as above: the out pointer is to so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(area.wrapping_add(UNIT), self.out, len) };
            }
            // SAFETY: the buffer begins with the result.
            Ok(unsafe { area.cast::<u64>().read_volatile() })
        })
        .unwrap_or_else(|| Err("this thread serves no target".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_loads_its_number_and_goes_on_in_one_place() {
        let code = instructions(0x0102_0304);
        let target = (ifunc_runner_call as *const () as u64).to_le_bytes();
        let expected = [
            &[0xb8, 4, 3, 2, 1][..],
            &[0x49, 0xbb],
            &target,
            &[0x41, 0xff, 0xe3],
        ];
        assert_eq!(code, expected.concat());
    }
}
