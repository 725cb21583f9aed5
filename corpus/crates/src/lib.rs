//! Popular crates, used inside ifuncs. None of them has code specific to images.

#![no_std]

extern crate alloc;

pub mod bytes;
pub mod checksums;
pub mod containers;
pub mod large;
pub mod maths;
pub mod parsers;
pub mod serialisation;

use corpus_case::Case;

/// The cases of this package, file by file.
pub const CASES: &[&[Case]] = &[
    bytes::CASES,
    checksums::CASES,
    containers::CASES,
    maths::CASES,
    parsers::CASES,
    serialisation::CASES,
    large::CASES,
];
