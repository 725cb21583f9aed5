//! What a check finds.

use std::path::PathBuf;

use crate::BuildError;

/// What a check looked at, and everything that a build would refuse.
#[derive(Debug, Default)]
pub struct Checked {
    /// The packages that were looked at.
    pub packages: Vec<String>,
    /// The ifuncs that were linked, in memory.
    pub ifuncs: Vec<CheckedIfunc>,
    /// Everything that is wrong, in the order in which it was found.
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
    /// Adds what another check found.
    pub(crate) fn add(&mut self, other: Self) {
        self.packages.extend(other.packages);
        self.ifuncs.extend(other.ifuncs);
        self.errors.extend(other.errors);
    }
}
