//! Crates that compile for long: every commit does without them.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;
use num_bigint::{BigInt, BigUint};
use regex_automata::meta::Regex;

/// Regular expressions, compiled on the target: the crate selects an engine by pattern.
#[ifunc]
pub fn regular_expressions(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let input = &input[..input.len().min(5000)];
    let patterns = [
        r"(?i)the|fox",
        r"(\w+)@(\w+)\.com",
        r"[0-9]+(?:\.[0-9]+)?",
        r"(?m)^\s*$",
        r"(a+)+b",
        r"\p{Lu}\p{Ll}*",
    ];
    for pattern in patterns {
        let regex = Regex::new(pattern).unwrap();
        for found in regex.find_iter(input).take(50) {
            out.put((found.start(), found.end()));
        }
        let mut captures = regex.create_captures();
        regex.captures(input, &mut captures);
        out.put(captures.get_group(1).map(|span| (span.start, span.end)));
    }
    let many = Regex::new_many(&["one", "t[hw]o", "h.l+o"]).unwrap();
    out.put(
        many.find_iter(input)
            .map(|found| found.pattern().as_usize())
            .collect::<Vec<_>>(),
    );
    let source: String = text(input).chars().take(20).collect();
    match Regex::new(&source) {
        Ok(regex) => out.put(regex.is_match(world.seed.to_string().as_bytes())),
        Err(error) => out.put(alloc::format!(
            "{error} {:?}",
            error.syntax_error().map(ToString::to_string)
        )),
    }
    out
}

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

corpus_case::cases! {
    regular_expressions: "regex-automata";
    big_integers: "num-bigint";
}
