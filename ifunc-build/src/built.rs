//! The result of a build.

use std::path::PathBuf;

use ifunc_abi::ImageId;

/// The language an ifunc is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
}

/// An ifunc whose library is in its place.
#[derive(Clone, Debug)]
pub struct BuiltIfunc {
    /// Its name.
    pub name: String,
    /// The library.
    pub path: PathBuf,
    /// BLAKE3 of the image.
    pub id: ImageId,
    /// The image itself.
    pub image: Vec<u8>,
    /// The Cargo package it belongs to; `None` for a C file by itself.
    pub package: Option<String>,
    /// The C file, or the manifest of the Rust package.
    pub source: PathBuf,
    /// The library was up to date and was not written.
    pub fresh: bool,
    /// Language.
    pub language: Language,
    /// How the linker resolved the image's relocations, each kind of case once.
    pub relocations: Vec<ifunc_link::RelocationUse>,
}
