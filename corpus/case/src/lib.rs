//! The types that the corpus' cases and their driver share: a case, the target's data, and how cases record
//! what they compute.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use ifunc::prelude::*;

mod put;

pub use put::Put;

/// Capacity for the results of C cases, in bytes.
pub const NOTES: usize = 16 << 10;

/// The target's data. `corpus.h` declares it for C.
#[derive(Layout)]
#[repr(C)]
pub struct World {
    /// A number unknown to the compiler of a case.
    pub seed: u64,
    /// A number for cases to change.
    pub calls: u64,
    /// Number of bytes written to `notes`.
    pub written: u64,
    /// The results of C cases.
    pub notes: [u8; NOTES],
}

impl World {
    /// The initial state of every case.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            seed: 0x0123_4567_89ab_cdef,
            calls: 0,
            written: 0,
            notes: [0; NOTES],
        }
    }

    /// Returns the state that a case left and resets the world.
    pub fn take(&mut self) -> Vec<u8> {
        let mut left = Vec::new();
        left.put(self.seed);
        left.put(self.calls);
        left.put(self.written);
        let written = usize::try_from(self.written).unwrap_or(NOTES).min(NOTES);
        left.extend_from_slice(&self.notes[..written]);
        self.notes[..written].fill(0);
        (self.seed, self.calls, self.written) = (Self::new().seed, 0, 0);
        left
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Computes a case's result for an input.
pub type Run = fn(&[u8], &mut World) -> Vec<u8>;

/// A case: a function that the driver both sends as an ifunc and calls directly.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the ifunc.
    pub name: &'static str,
    /// The function itself.
    pub run: Run,
    /// The language features or crates that it covers.
    pub features: &'static [&'static str],
}

/// Lists the cases of a file as `CASES`, with the features that each covers.
#[macro_export]
macro_rules! cases {
    ($($name:ident: $($feature:literal),+;)+) => {
        /// The cases of this file.
        pub const CASES: &[$crate::Case] = &[$($crate::Case {
            name: stringify!($name),
            run: $name,
            features: &[$($feature),+],
        }),+];
    };
}

/// The input as numbers; zeros pad the last one.
pub fn words(input: &[u8]) -> impl Iterator<Item = u64> + '_ {
    input.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    })
}

/// The input as text, with replacement characters for invalid UTF-8.
#[must_use]
pub fn text(input: &[u8]) -> alloc::borrow::Cow<'_, str> {
    alloc::string::String::from_utf8_lossy(input)
}

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Disorder(u64);

impl Disorder {
    /// Starts with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }
}

impl Iterator for Disorder {
    type Item = u64;

    /// SplitMix64.
    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}
