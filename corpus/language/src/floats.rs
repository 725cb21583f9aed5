//! Floats.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;

fn floats(input: &[u8], world: &World) -> Vec<f64> {
    let chosen = [
        0.0,
        -0.0,
        1.5,
        f64::NAN,
        f64::INFINITY,
        f64::MIN_POSITIVE,
        1e300,
        4.9e-324,
    ];
    let raw = words(input).map(f64::from_bits).take(40);
    let tame = Disorder::new(world.seed ^ input.len() as u64)
        .map(|word| (word >> 11) as f64 / 1e9 - 3e6)
        .take(20);
    chosen.into_iter().chain(raw).chain(tame).collect()
}

/// Arithmetic, comparisons, remainders, conversions.
#[ifunc]
pub fn float_arithmetic(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for pair in floats(input, world).windows(2) {
        let (a, b) = (pair[0], pair[1]);
        out.put(a + b);
        out.put(a - b);
        out.put(a * b);
        out.put(a / b);
        out.put(a % b);
        out.put((a as f32) % (b as f32));
        // Of two zeros, either is the larger one: their signs are no part of the result.
        out.put(a.max(b) + 0.0);
        out.put((a as f32).min(b as f32) + 0.0);
        out.put(a.clamp(-2.0, 2.0));
        out.put(a.abs());
        out.put(a.copysign(b));
        out.put(a < b);
        out.put(a == b);
        out.put(a.total_cmp(&b) as i8);
        out.put(a.to_degrees());
        out.put(a.recip());
        out.put(-a);
    }
    out
}

/// Conversions to integers of all widths and back.
#[ifunc]
pub fn float_conversions(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for a in floats(input, world) {
        out.put(a as u8);
        out.put(a as i8);
        out.put(a as u16);
        out.put(a as i32);
        out.put(a as u32);
        out.put(a as i64);
        out.put(a as u64);
        out.put(a as u128);
        out.put(a as f32);
        out.put((a as f32) as u64);
        out.put(a.to_bits() as f32);
        out.put(a.to_bits() as i64 as f64);
        out.put(a.classify() as u8);
        out.put(a.is_sign_negative());
        out.put(f64::from(a as i32 as f32));
    }
    out
}

/// Floats to text.
#[ifunc]
pub fn float_format(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for a in floats(input, world) {
        out.put(a.to_string());
        out.put((a as f32).to_string());
        out.put(format!(
            "{a:?} {a:e} {a:E} {a:.3} {a:+012.2} {:.0} {:>10.1}|",
            a as f32, a as f32
        ));
    }
    out.truncate(60_000);
    out
}

/// Text to floats.
#[ifunc]
pub fn float_parse(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let fixed = "1 -0 1e400 1e-400 2.2250738585072011e-308 0.1 123456789012345678901234567890 nan inf x 1e 5e-324 \
                 179769313486231580793e289 3.4028235e38 1.17549435e-38 9007199254740993 0.30000001192092896";
    let text = corpus_case::text(input);
    for piece in fixed.split(' ').chain(text.split_whitespace().take(300)) {
        out.put(piece.parse::<f64>().ok());
        out.put(piece.parse::<f32>().ok());
        if let Err(error) = piece.parse::<f64>() {
            out.put(error.to_string());
        }
    }
    out
}

corpus_case::cases! {
    float_arithmetic: "f32 and f64 arithmetic", "fmod";
    float_conversions: "floats to integers and back";
    float_format: "formatting floats";
    float_parse: "parsing floats";
}
