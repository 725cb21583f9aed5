//! A table that lies in several targets, for the irregular workloads: random increments, and random reads.

use ifunc::prelude::*;

/// Words of a target's part: more than a second-level cache holds.
pub const WORDS: usize = 1 << 20;

/// A target's part.
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
