//! Large, random and transcendental numbers.

use alloc::string::ToString;
use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;
use num_bigint::{BigInt, BigUint};
use rand_core::{RngCore, SeedableRng};

/// Integers of hundreds of digits.
#[ifunc]
pub fn big_integers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let a = BigUint::from_bytes_le(&input[..input.len().min(300)]) + 3_u32;
    let b = BigUint::from_slice(
        &words(input)
            .chain([world.seed])
            .take(40)
            .map(|w| w as u32)
            .collect::<Vec<_>>(),
    );
    let product = &a * &b;
    out.put(product.to_string());
    out.put((&product % (&b + 7_u32)).to_bytes_be());
    out.put((&product / (&a - 1_u32)).to_str_radix(36));
    out.put(
        a.modpow(&BigUint::from(65_537_u32), &(b | BigUint::from(1_u32)))
            .to_bytes_le(),
    );
    out.put(product.sqrt().bits());
    let signed = BigInt::from(product) * BigInt::from(-5) + BigInt::from(world.seed).pow(9);
    out.put(signed.to_string());
    out.put((signed >> 17_usize).to_signed_bytes_le());
    let factorial: BigUint = (1..input.len() as u32 % 200 + 2).map(BigUint::from).product();
    out.put(factorial.to_string());
    out
}

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

/// Random identifiers: not which they are, but that they are random.
#[ifunc]
pub fn random_identifiers(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut ids: Vec<uuid::Uuid> = (0..2 + input.len() % 10).map(|_| uuid::Uuid::new_v4()).collect();
    out.put(ids.iter().all(|id| id.get_version_num() == 4));
    out.put(uuid::Uuid::parse_str(&ids[0].to_string()).is_ok_and(|id| id == ids[0]));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    out.put(ids.len() == count);
    out
}

corpus_case::cases! {
    big_integers: "num-bigint";
    maths_functions: "libm";
    random_numbers: "rand_chacha", "rand_core";
    random_identifiers: "uuid", "getrandom";
}
