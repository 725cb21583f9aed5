//! AArch64: Advanced SIMD.

use core::arch::aarch64::*;
use core::arch::asm;

use alloc::vec::Vec;

use corpus_case::Put;

const MASK: [i8; 16] = [1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16];
/// The bit of each lane of a mask of eight.
const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

pub(super) fn vectors(input: &[u8], seed: u64, out: &mut Vec<u8>) {
    // SAFETY: every AArch64 CPU of Linux has Advanced SIMD; loads and stores are inside their arrays.
    unsafe {
        let mut sum = vreinterpretq_u32_u64(vdupq_n_u64(seed));
        let mask = vreinterpretq_u8_s8(vld1q_s8(MASK.as_ptr()));
        for chunk in input.chunks_exact(16) {
            let value = vld1q_u8(chunk.as_ptr());
            let shifted = vshlq_n_u32::<3>(vreinterpretq_u32_u8(value));
            let mixed = veorq_u32(vreinterpretq_u32_u8(vandq_u8(value, mask)), shifted);
            let pairs = vrev64q_u32(mixed);
            sum = vaddq_u32(sum, vextq_u32::<2>(pairs, pairs));
            let low = vmovl_u8(vget_low_u8(value));
            sum = vreinterpretq_u32_u16(vsubq_u16(vreinterpretq_u16_u32(sum), low));
            out.truncate(2048);
            let above = vcgtq_s8(vreinterpretq_s8_u8(value), vdupq_n_s8(64));
            let bits = vandq_u8(above, vld1q_u8(BITS.as_ptr()));
            let halves = [vaddv_u8(vget_low_u8(bits)), vaddv_u8(vget_high_u8(bits))];
            out.put(i32::from(u16::from_le_bytes(halves)));
        }
        let mut words = [0_u8; 16];
        vst1q_u8(words.as_mut_ptr(), vreinterpretq_u8_u32(sum));
        out.put(words);
        let mut a = vld1q_f64([2.5, 1.5].as_ptr());
        let b = vdupq_n_f64(1.0 + input.len() as f64);
        for _ in 0..10 {
            a = vsqrtq_f64(vaddq_f64(vmulq_f64(a, b), vdivq_f64(b, a)));
        }
        let mut floats = [0.0; 2];
        vst1q_f64(floats.as_mut_ptr(), a);
        out.put(floats);
        out.put(vcvtnd_s64_f64(floats[0]));
    }
}

/// The low and the high half of a product.
pub(super) fn multiply(word: u64, by: u64) -> (u64, u64) {
    let (low, high);
    // SAFETY: only the named registers change.
    unsafe {
        asm!(
            "umulh {high}, {word}, {by}",
            "mul {low}, {word}, {by}",
            word = in(reg) word,
            by = in(reg) by,
            high = out(reg) high,
            low = lateout(reg) low,
            options(pure, nomem, nostack)
        );
    }
    (low, high)
}

/// Multiplies by three and adds one, as often as `counter` says.
pub(super) fn count_down(mut sum: u64, mut counter: u64) -> (u64, u64) {
    // SAFETY: only the named registers change.
    unsafe {
        asm!(
            "2:",
            "add {sum}, {sum}, {sum}, lsl #1",
            "add {sum}, {sum}, #1",
            "subs {counter}, {counter}, #1",
            "b.ne 2b",
            sum = inout(reg) sum,
            counter = inout(reg) counter,
            options(nomem, nostack)
        );
    }
    (sum, counter)
}

/// 1 if the first is less than the second.
pub(super) fn is_below(a: u64, b: u64) -> u8 {
    let borrowed: u64;
    // SAFETY: only the named registers change.
    unsafe {
        asm!("cmp {a}, {b}", "cset {c}, lo", a = in(reg) a, b = in(reg) b, c = lateout(reg) borrowed, options(pure, nomem, nostack));
    }
    borrowed as u8
}
