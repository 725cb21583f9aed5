//! Why a node did not do what it was asked to.

use core::fmt;

use ifunc::prelude::*;

/// Why a node did not do what it was asked to. Later versions of the daemon add to it.
#[derive(Layout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum NodeError {
    /// The source may not use this.
    Denied = 1,
    /// The source has made as many calls in this second as it may.
    Rate = 2,
    /// The source would use more than its quota, or the node has no more.
    Quota = 3,
    /// There is no such file or region.
    NotFound = 4,
    /// This is not a name here: it is empty or too long, or a path leaves the folder.
    Name = 5,
    /// An offset or a length is outside of the file, the region, or what one call moves.
    Range = 6,
    /// A region of this name has another length, or a value was not the expected one.
    Conflict = 7,
    /// The system reported an error, which the daemon logs.
    Storage = 8,
    /// An error of a later version.
    #[layout(other)]
    Other = -1,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "the node's configuration does not allow it",
            Self::Rate => "too many calls in this second",
            Self::Quota => "a quota of the node's configuration is used up",
            Self::NotFound => "there is no such file or region",
            Self::Name => "not a name: empty, too long, or a path that leaves the folder",
            Self::Range => "an offset or a length is out of range",
            Self::Conflict => "it has another length or another value",
            Self::Storage => "the node's system reported an error, which its log has",
            Self::Other => "an error that this version does not know",
        })
    }
}

impl core::error::Error for NodeError {}
