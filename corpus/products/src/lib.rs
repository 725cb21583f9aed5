//! Crates that servers and their clients are made of, used inside ifuncs. None of them has code specific to images.

#![no_std]

extern crate alloc;

#[cfg(feature = "all")]
pub mod cryptography;
#[cfg(feature = "all")]
pub mod engines;
#[cfg(feature = "all")]
pub mod formats;
#[cfg(feature = "all")]
pub mod languages;
#[cfg(feature = "all")]
pub mod numbers;
#[cfg(feature = "all")]
pub mod structures;

use corpus_case::Case;

/// The cases of this package, file by file.
pub const CASES: &[&[Case]] = &[
    #[cfg(feature = "all")]
    cryptography::CASES,
    #[cfg(feature = "all")]
    engines::CASES,
    #[cfg(feature = "all")]
    formats::CASES,
    #[cfg(feature = "all")]
    languages::CASES,
    #[cfg(feature = "all")]
    numbers::CASES,
    #[cfg(feature = "all")]
    structures::CASES,
];
