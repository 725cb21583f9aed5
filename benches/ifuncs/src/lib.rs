//! The ifuncs that the benchmarks send.
#![no_std]

use ifunc::prelude::*;

/// What the targets of the benchmarks own.
#[derive(Debug, Default, Layout)]
#[repr(C)]
pub struct Tally {
    /// Invocations.
    pub count: u64,
    /// Of every payload byte, as [`sum`] adds them up.
    pub sum: u64,
}

/// Reads every byte of the payload: sums it up as little-endian words, the last one filled with zeros.
#[ifunc]
pub fn sum(payload: &[u8], tally: &mut Tally) {
    tally.count += 1;
    tally.sum = tally.sum.wrapping_add(words(payload));
}

/// The sum of little-endian words, the last one filled with zeros. Peers' handlers call the same.
#[inline]
#[must_use]
pub fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().fold(u64::from_le_bytes(last), |sum, word| {
        sum.wrapping_add(u64::from_le_bytes(*word))
    })
}
