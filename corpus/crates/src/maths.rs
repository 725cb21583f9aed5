//! Random and transcendental numbers.

use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;
use rand_core::{RngCore, SeedableRng};

/// The functions of a maths library.
#[ifunc]
pub fn maths_functions(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers = Disorder::new(world.seed ^ input.len() as u64).map(|w| (w >> 20) as f64 / 1e11 - 80.0);
    let raw = words(input).map(f64::from_bits).take(30);
    for x in numbers.take(40).chain(raw) {
        out.put(libm::sin(x));
        out.put(libm::tan(x));
        out.put(libm::exp(x / 8.0));
        out.put(libm::log(x.abs()));
        out.put(libm::pow(x.abs(), 1.7));
        out.put(libm::cbrt(x));
        out.put(libm::hypot(x, 3.0));
        out.put(libm::atan2(x, 2.0));
        out.put(libm::tgamma(x / 4.0));
        out.put(libm::fma(x, x, -1.0));
        out.put(libm::sqrtf(x as f32));
        out.put(libm::floor(x) + libm::rint(x));
        out.put(libm::fmod(x, 0.7));
        out.put(libm::jn(3, x));
    }
    out
}

/// Random numbers with a fixed seed.
#[ifunc]
pub fn random_numbers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut seed = [1; 32];
    seed[..8].copy_from_slice(&world.seed.to_le_bytes());
    seed.iter_mut()
        .zip(input)
        .for_each(|(place, byte)| *place ^= byte);
    let mut slow = rand_chacha::ChaCha20Rng::from_seed(seed);
    let mut fast = rand_chacha::ChaCha8Rng::seed_from_u64(input.len() as u64);
    for _ in 0..100 {
        out.put(slow.next_u64() ^ fast.next_u64());
        out.put(slow.next_u32());
    }
    let mut bytes = [0; 777];
    fast.fill_bytes(&mut bytes);
    out.put(bytes);
    slow.set_word_pos(world.seed.into());
    out.put(slow.next_u32());
    out
}

corpus_case::cases! {
    maths_functions: "libm";
    random_numbers: "rand_chacha", "rand_core";
}
