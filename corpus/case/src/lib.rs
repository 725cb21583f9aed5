//! What the corpus' cases and their driver share: the shape of a case, the target's data, and how cases write down what
//! they computed.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use ifunc::prelude::*;

mod put;

pub use put::Put;

/// Room for what C cases compute.
pub const NOTES: usize = 16 << 10;

/// What the target of the corpus owns. `corpus.h` has it in C.
#[derive(Layout)]
#[repr(C)]
pub struct World {
    /// A number that no case knows when it is compiled.
    pub seed: u64,
    /// For cases to change.
    pub calls: u64,
    /// How much of `notes` is written.
    pub written: u64,
    /// What C cases computed.
    pub notes: [u8; NOTES],
}

impl World {
    /// As every case finds it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            seed: 0x0123_4567_89ab_cdef,
            calls: 0,
            written: 0,
            notes: [0; NOTES],
        }
    }

    /// What a case left behind; the next one finds the world as it was.
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

/// What a case computes of an input.
pub type Run = fn(&[u8], &mut World) -> Vec<u8>;

/// A case: a function that is sent as an ifunc, and called.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the ifunc.
    pub name: &'static str,
    /// The very function.
    pub run: Run,
    /// What of the language or which crate it covers.
    pub features: &'static [&'static str],
}

/// Lists the cases of a file as `CASES`: each with what it covers.
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

/// The input as numbers; the last is filled up with zeros.
pub fn words(input: &[u8]) -> impl Iterator<Item = u64> + '_ {
    input.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    })
}

/// The input as text; what is none is replaced.
#[must_use]
pub fn text(input: &[u8]) -> alloc::borrow::Cow<'_, str> {
    alloc::string::String::from_utf8_lossy(input)
}

/// Numbers in disorder, from a seed.
#[derive(Clone, Debug)]
pub struct Disorder(u64);

impl Disorder {
    /// Starts at a seed.
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
