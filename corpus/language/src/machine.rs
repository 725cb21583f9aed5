//! Features specific to x86-64.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

/// SSE2 intrinsics and vector constants.
#[ifunc]
pub fn simd(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    // SAFETY: every x86-64 CPU has SSE2; loads and stores are unaligned and inside their arrays.
    unsafe {
        let mut sum = _mm_set1_epi64x(world.seed.cast_signed());
        let mask = _mm_setr_epi8(1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16);
        for chunk in input.chunks_exact(16) {
            let value = _mm_loadu_si128(chunk.as_ptr().cast());
            let mixed = _mm_xor_si128(_mm_and_si128(value, mask), _mm_slli_epi32::<3>(value));
            sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b00_01_10_11>(mixed));
            sum = _mm_sub_epi16(sum, _mm_unpacklo_epi8(value, _mm_setzero_si128()));
            out.truncate(2048);
            out.put(_mm_movemask_epi8(_mm_cmpgt_epi8(value, _mm_set1_epi8(64))));
        }
        let mut words = [0_u8; 16];
        _mm_storeu_si128(words.as_mut_ptr().cast(), sum);
        out.put(words);
        let (mut a, b) = (_mm_set_pd(1.5, 2.5), _mm_set1_pd(1.0 + input.len() as f64));
        for _ in 0..10 {
            a = _mm_sqrt_pd(_mm_add_pd(_mm_mul_pd(a, b), _mm_div_pd(b, a)));
        }
        let mut floats = [0.0; 2];
        _mm_storeu_pd(floats.as_mut_ptr(), a);
        out.put(floats);
        out.put(_mm_cvtsd_si64(a));
    }
    out
}

/// Inline assembly: operands in registers and memory, flags, loops, labels.
#[ifunc]
pub fn inline_assembly(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed]).take(100) {
        let (low, high): (u64, u64);
        let mut counter = word % 50 + 1;
        let (mut sum, carry): (u64, u8) = (word, 0);
        let borrowed: u8;
        // SAFETY: only the named registers change.
        unsafe {
            asm!("mul {by}", by = in(reg) world.seed, inout("rax") word => low, out("rdx") high, options(nomem, nostack));
            asm!(
                "2:",
                "lea {sum}, [{sum} + {sum} * 2 + 1]",
                "dec {counter}",
                "jnz 2b",
                sum = inout(reg) sum,
                counter = inout(reg) counter,
                options(nomem, nostack)
            );
            asm!("cmp {a}, {b}", "setb {c}", a = in(reg) word, b = in(reg) sum, c = out(reg_byte) borrowed, options(nomem, nostack));
        }
        out.put((low, high));
        out.put((sum, counter));
        out.put(carry + borrowed);
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
    simd: "SSE2 intrinsics";
    inline_assembly: "inline assembly";
    raw_memory: "volatile, MaybeUninit, unaligned reads, transmute";
}
