//! A table distributed over several targets, for the irregular workloads: random increments and random reads.

use ifunc::prelude::*;

/// Number of words per target: more than a second-level cache holds.
pub const WORDS: usize = 1 << 20;

/// The part of one target.
pub type Table = [u64; WORDS];

/// Increments a word.
#[ifunc]
pub fn update(at: u64, table: &mut Table) {
    let word = &mut table[at as usize % WORDS];
    *word = word.wrapping_add(1);
}

/// Answers a word.
#[ifunc]
pub fn read(at: u64, table: &mut Table) -> u64 {
    table[at as usize % WORDS]
}
