//! The result of a check.

use std::path::PathBuf;

use crate::BuildError;

/// The packages and ifuncs of a check, and every reason why a build would fail.
#[derive(Debug, Default)]
pub struct Checked {
    /// The packages that were checked.
    pub packages: Vec<String>,
    /// The ifuncs that were linked, in memory.
    pub ifuncs: Vec<CheckedIfunc>,
    /// Every error, in the order of the check.
    pub errors: Vec<BuildError>,
}

/// An ifunc that makes an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedIfunc {
    /// Its name.
    pub name: String,
    /// The package it belongs to; `None` for files by themselves.
    pub package: Option<String>,
    /// The file or manifest that it comes from.
    pub source: PathBuf,
    /// Length of its image in bytes.
    pub image_bytes: usize,
}

impl Checked {
    /// Adds the result of another check.
    pub(crate) fn add(&mut self, other: Self) {
        self.packages.extend(other.packages);
        self.ifuncs.extend(other.ifuncs);
        self.errors.extend(other.errors);
    }
}
