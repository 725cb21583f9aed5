//! The result of a build.

use std::path::PathBuf;

use ifunc_abi::ImageId;
use ifunc_abi::image::Image;
use ifunc_abi::machine::Machine;
use ifunc_abi::slices::{NATIVE, Slice, encode};
use ifunc_link::Linked;

/// The language an ifunc is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
}

/// An image for other machines than the first slice of its library.
#[derive(Clone, Debug)]
pub struct BuiltSlice {
    /// The machines that it is for.
    pub machine: Machine,
    /// BLAKE3 of the image.
    pub id: ImageId,
    /// The image itself.
    pub image: Vec<u8>,
}

impl BuiltSlice {
    /// An image that the linker made.
    pub(crate) fn new(linked: &Linked) -> Self {
        Self {
            machine: machine_of(&linked.image),
            id: *blake3::hash(&linked.image).as_bytes(),
            image: linked.image.clone(),
        }
    }
}

/// The machines that an image is for.
fn machine_of(image: &[u8]) -> Machine {
    Image::parse(image)
        .map(|image| image.machine())
        .unwrap_or_default()
}

impl BuiltIfunc {
    /// What a program embeds: the image, or a table of slices.
    #[must_use]
    pub fn embedded(&self) -> Vec<u8> {
        if self.other_slices.is_empty() {
            return self.image.clone();
        }
        let slice = |machine, id, bytes| Slice {
            kind: NATIVE,
            machine,
            id,
            bytes,
        };
        let first = slice(machine_of(&self.image), self.id, &*self.image);
        let others = self.other_slices.iter();
        let others = others.map(|other| slice(other.machine, other.id, &other.image));
        let slices: Vec<Slice<'_>> = std::iter::once(first).chain(others).collect();
        // The library has the same table: there are not too many.
        encode(&slices).unwrap_or_else(|_| self.image.clone())
    }
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
    /// The image itself; of a library with several slices, the first.
    pub image: Vec<u8>,
    /// The images of the other slices.
    pub other_slices: Vec<BuiltSlice>,
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
