//! What `loader.c` reads and prints.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::fmt::Write as _;

use ifunc_abi::image::{Image, ImportFlags, Relocation};

/// A word that says that there is nothing.
const NONE: u64 = u64::MAX;

/// The status of a call, and the numbers that it wrote.
pub type Outcome = (u32, [u64; 64]);

/// A payload, as an argument.
pub fn hex(payload: &[u8]) -> String {
    let mut hex = String::new();
    for byte in payload {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

/// A line of the loader's output.
pub fn outcome(line: &str) -> Outcome {
    let (status, numbers) = line.split_once(' ').unwrap();
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    (status.parse().unwrap(), numbers.try_into().unwrap())
}

/// An image as `loader.c` reads it.
pub fn plan_of(image: &Image<'_>) -> Vec<u8> {
    let mut plan = Vec::new();
    let mut words = |words: &[u64]| plan.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let (rw_at, rw_mem) = image.rw_range().unwrap_or_default();
    words(&[
        image.entries().next().unwrap().main.into(),
        image.rx().len() as u64,
        rw_at.into(),
        image.rw().len() as u64,
        rw_mem.into(),
        image.slot().map_or(NONE, u64::from),
        image.imports().count() as u64,
        image.relocation_count() as u64,
    ]);
    for relocation in image.relocations() {
        let offset = u64::from(relocation.offset());
        match relocation {
            Relocation::Relative { addend, .. } => words(&[offset, NONE, i64::from(addend) as u64]),
            Relocation::Import { import, addend, .. } => words(&[offset, import.into(), addend as u64]),
        }
    }
    for import in image.imports() {
        plan.push(u8::from(import.flags.contains(ImportFlags::WEAK)));
        plan.extend_from_slice(import.symbol.as_bytes());
        plan.push(0);
    }
    plan.extend_from_slice(image.rx());
    plan.extend_from_slice(image.rw());
    plan
}
