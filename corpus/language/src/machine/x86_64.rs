//! x86-64: SSE2.

use core::arch::asm;
use core::arch::x86_64::*;

use alloc::vec::Vec;

use corpus_case::Put;

pub(super) fn vectors(input: &[u8], seed: u64, out: &mut Vec<u8>) {
    // SAFETY: every x86-64 CPU has SSE2; loads and stores are unaligned and inside their arrays.
    unsafe {
        let mut sum = _mm_set1_epi64x(seed.cast_signed());
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
}

/// The low and the high half of a product.
pub(super) fn multiply(word: u64, by: u64) -> (u64, u64) {
    let (low, high);
    // SAFETY: only the named registers change.
    unsafe {
        asm!("mul {by}", by = in(reg) by, inout("rax") word => low, out("rdx") high, options(nomem, nostack));
    }
    (low, high)
}

/// Multiplies by three and adds one, as often as `counter` says.
pub(super) fn count_down(mut sum: u64, mut counter: u64) -> (u64, u64) {
    // SAFETY: only the named registers change.
    unsafe {
        asm!(
            "2:",
            "lea {sum}, [{sum} + {sum} * 2 + 1]",
            "dec {counter}",
            "jnz 2b",
            sum = inout(reg) sum,
            counter = inout(reg) counter,
            options(nomem, nostack)
        );
    }
    (sum, counter)
}

/// 1 if the first is less than the second.
pub(super) fn is_below(a: u64, b: u64) -> u8 {
    let borrowed;
    // SAFETY: only the named registers change.
    unsafe {
        asm!("cmp {a}, {b}", "setb {c}", a = in(reg) a, b = in(reg) b, c = out(reg_byte) borrowed, options(nomem, nostack));
    }
    borrowed
}
