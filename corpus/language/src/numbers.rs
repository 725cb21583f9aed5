//! Integers.

use alloc::string::ToString;
use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;

fn wide(input: &[u8], world: &World) -> Vec<u128> {
    let numbers = words(input).chain(Disorder::new(world.seed)).take(40);
    let numbers: Vec<u64> = numbers.collect();
    numbers
        .chunks(2)
        .map(|pair| u128::from(pair[0]) << 64 | u128::from(pair[1]))
        .collect()
}

/// 128-bit numbers: multiplication, division, shifts, comparisons, conversions.
#[ifunc]
pub fn wide_integers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for pair in wide(input, world).chunks(2) {
        let (a, b) = (pair[0], pair[1] >> (pair[0] % 127));
        out.put(a.wrapping_mul(b));
        out.put(a.checked_div(b));
        out.put(a.checked_rem(b));
        out.put((a as i128).checked_div(-(b as i128).wrapping_abs()));
        out.put((a as i128).checked_rem((b as i128).wrapping_neg()));
        out.put(a.wrapping_shl(b as u32));
        out.put((a as i128).wrapping_shr(b as u32));
        out.put(a.leading_zeros() + b.trailing_zeros() + a.count_ones());
        out.put(a as f64);
        out.put(a as f32);
        out.put(a as i128 as f64);
        out.put((a as f64) as u128);
        out.put(-(b as f64) as i128);
        out.put(a.checked_mul(b));
        out.put((a as i128).overflowing_mul(b as i128).1);
        out.put(a < b);
    }
    out
}

/// Checked, saturating and wrapping arithmetic at the ends of the range.
#[ifunc]
pub fn checked_arithmetic(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers: Vec<u64> = words(input)
        .chain([world.seed, 0, 1, u64::MAX])
        .take(64)
        .collect();
    for pair in numbers.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        out.put(a.checked_add(b));
        out.put(a.checked_sub(b));
        out.put(a.checked_mul(b));
        out.put(a.checked_div(b));
        out.put(a.checked_pow(b as u32 % 9));
        out.put(a.saturating_add(b));
        out.put((a as i32).saturating_mul(b as i32));
        out.put((a as i8).saturating_sub(b as i8));
        out.put((a as i64).overflowing_add(b as i64));
        out.put((a as u16).wrapping_pow(b as u32));
        out.put((a as i16).wrapping_neg());
        out.put((a as i32).checked_abs());
        out.put((a as i64).checked_rem_euclid(b as i64));
        out.put(a.abs_diff(b));
        out.put(a.isqrt());
        out.put(a.checked_ilog10());
        out.put(a.midpoint(b));
        out.put(u32::try_from(a).ok());
        out.put(i8::try_from(a as i16).ok());
        out.put(a.checked_next_power_of_two());
    }
    out
}

/// Shifts and rotations by amounts known at run time only.
#[ifunc]
pub fn shifts(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, word) in words(input).chain([world.seed]).take(200).enumerate() {
        let by = (word as u32).wrapping_add(index as u32);
        out.put(word.wrapping_shl(by));
        out.put((word as i64).wrapping_shr(by));
        out.put((word as u8).rotate_left(by));
        out.put((word as u16).rotate_right(by));
        out.put((word as u32).checked_shl(by % 40));
        out.put((word as i32).checked_shr(by % 40));
        out.put(word << (by & 63));
        out.put((word as i8) >> (by & 7));
    }
    out
}

/// Bits: counting, spreading, gathering, reversing.
#[ifunc]
pub fn bit_tricks(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed, 0]).take(200) {
        out.put(word.count_ones());
        out.put(word.leading_zeros());
        out.put(word.trailing_ones());
        out.put(word.swap_bytes());
        out.put(word.reverse_bits());
        out.put((word as u16).reverse_bits());
        out.put(word & word.wrapping_neg());
        out.put(
            (0..64)
                .filter(|bit| word >> bit & 1 == 1)
                .fold(0_u64, |sum, bit| sum.wrapping_mul(3) ^ bit),
        );
        out.put(word.to_be_bytes());
        out.put(u32::from_be_bytes([word as u8, 2, 3, (word >> 8) as u8]));
        out.put(word.is_power_of_two());
    }
    out
}

/// Integers to text in several bases, and back.
#[ifunc]
pub fn integer_text(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed, 0, u64::MAX]).take(60) {
        let decimal = word.to_string();
        out.put(decimal.parse::<u64>().is_ok_and(|back| back == word));
        out.put(decimal);
        out.put((word as i128).wrapping_mul(-7_000_000_007).to_string());
        out.put(i16::from_str_radix(&alloc::format!("{:x}", word as u16), 16).ok());
        out.put(alloc::format!(
            "{word:#b} {word:o} {:X} {:+} {:08}",
            word as u32,
            word as i8,
            word as u16
        ));
    }
    for piece in corpus_case::text(input).split_ascii_whitespace().take(200) {
        for error in [piece.parse::<u8>().err(), piece.parse::<i64>().err()]
            .into_iter()
            .flatten()
        {
            out.put(error.to_string());
        }
        out.put(piece.parse::<u128>().ok());
        out.put(u32::from_str_radix(piece, 36).ok());
    }
    out
}

corpus_case::cases! {
    wide_integers: "u128 and i128", "128-bit division";
    checked_arithmetic: "checked, saturating, wrapping arithmetic", "narrow integers";
    shifts: "shifts and rotations";
    bit_tricks: "bit counting and swapping";
    integer_text: "integers to text and back";
}
