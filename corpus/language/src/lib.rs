//! Rust language features and core libraries, as ifuncs. Each case computes from its input and returns all
//! results. The driver calls the same functions directly and compares.

#![no_std]
#![allow(clippy::manual_is_multiple_of, reason = "the cases are about arithmetic")]

extern crate alloc;

#[cfg(feature = "all")]
pub mod collections;
#[cfg(feature = "all")]
pub mod control;
#[cfg(feature = "all")]
pub mod data;
pub mod dispatch;
#[cfg(feature = "all")]
pub mod floats;
#[cfg(feature = "all")]
pub mod formatting;
pub mod imports;
#[cfg(feature = "all")]
pub mod iterators;
#[cfg(feature = "all")]
pub mod machine;
#[cfg(feature = "all")]
pub mod memory;
#[cfg(feature = "all")]
pub mod numbers;
#[cfg(feature = "all")]
pub mod panics;
pub mod strings;
#[cfg(feature = "all")]
pub mod text;
pub mod world;

use corpus_case::Case;

/// The cases of this package, file by file.
pub const CASES: &[&[Case]] = &[
    dispatch::CASES,
    imports::CASES,
    strings::CASES,
    #[cfg(feature = "all")]
    collections::CASES,
    #[cfg(feature = "all")]
    control::CASES,
    #[cfg(feature = "all")]
    data::CASES,
    #[cfg(feature = "all")]
    floats::CASES,
    #[cfg(feature = "all")]
    formatting::CASES,
    #[cfg(feature = "all")]
    iterators::CASES,
    #[cfg(feature = "all")]
    machine::CASES,
    #[cfg(feature = "all")]
    memory::CASES,
    #[cfg(feature = "all")]
    numbers::CASES,
    #[cfg(feature = "all")]
    panics::CASES,
    #[cfg(feature = "all")]
    text::CASES,
];
