//! What is another thing on each architecture: vector intrinsics, inline assembly, raw memory. The results are the same.

#[cfg(target_arch = "aarch64")]
#[path = "machine/aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "machine/x86_64.rs"]
mod arch;

use core::mem::MaybeUninit;

use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

/// Vector intrinsics and vector constants.
#[ifunc]
pub fn simd(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    arch::vectors(input, world.seed, &mut out);
    out
}

/// Inline assembly: operands in registers and memory, flags, loops, labels.
#[ifunc]
pub fn inline_assembly(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed]).take(100) {
        let product = arch::multiply(word, world.seed);
        let (sum, counter) = arch::count_down(word, word % 50 + 1);
        out.put(product);
        out.put((sum, counter));
        out.put(arch::is_below(word, sum));
    }
    out
}

/// Volatile accesses, uninitialised memory, raw pointers.
#[ifunc]
pub fn raw_memory(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buffer: [MaybeUninit<u64>; 32] = [const { MaybeUninit::uninit() }; 32];
    let mut filled = 0;
    for (place, word) in buffer.iter_mut().zip(words(input)) {
        place.write(word);
        filled += 1;
    }
    for place in &buffer[..filled] {
        // SAFETY: the first `filled` elements are initialised.
        out.put(unsafe { place.assume_init() });
    }
    let pointer = &raw mut world.calls;
    for byte in input {
        // SAFETY: the ifunc has exclusive access to the world.
        unsafe {
            pointer.write_volatile(
                pointer
                    .read_volatile()
                    .wrapping_mul(3)
                    .wrapping_add((*byte).into()),
            )
        };
    }
    let bytes = input.as_ptr();
    for at in (0..input.len().saturating_sub(8)).step_by(13).take(200) {
        // SAFETY: eight bytes are readable at `at`.
        out.put(unsafe { bytes.add(at).cast::<u64>().read_unaligned() });
    }
    out.put(core::hint::black_box(input.len()));
    let length: fn(&[u8]) -> usize = <[u8]>::len;
    // SAFETY: the address is that of a function of this type.
    let again = unsafe {
        core::mem::transmute::<*const (), fn(&[u8]) -> usize>(core::hint::black_box(length as *const ()))
    };
    out.put(again(input));
    out
}

corpus_case::cases! {
    simd: "vector intrinsics";
    inline_assembly: "inline assembly";
    raw_memory: "volatile, MaybeUninit, unaligned reads, transmute";
}
