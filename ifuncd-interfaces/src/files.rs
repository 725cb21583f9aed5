//! Files below a folder of the node.

use core::ops::ControlFlow;

use crate::NodeError;

/// Files below a folder of the node. A path is relative to that folder, with `/` between names; the empty path is the folder itself. Neither
/// `..` nor a symbolic link leads out of it.
#[ifunc::interface(name = "ifuncd_files")]
pub trait Files {
    /// Reads from an offset on, as much as has room. Returns how many bytes it read; 0 at the end of the file.
    ///
    /// # Errors
    /// [`NodeError::NotFound`], [`NodeError::Name`]; as for every call, it is not allowed, too frequent, or the system failed.
    fn read(&self, path: &str, offset: u64, bytes: &mut [u8]) -> Result<usize, NodeError>;

    /// Reads `len` bytes from an offset on, or up to the end of the file, and calls `each` with one piece after the other, until it breaks.
    /// The pieces have at least 64 KiB, but for the last one. Returns how many bytes it passed on. It counts as one call.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_each(
        &self,
        path: &str,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<u64, NodeError>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn file_len(&self, path: &str) -> Result<u64, NodeError>;

    /// Calls `each` with the name of every file and folder in a folder, in the order of the names, until it breaks. The name of a folder
    /// ends with `/`. Returns how many there were.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<u64, NodeError>;

    /// Writes at an offset, and makes the file if there is none. Folders are not made.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`NodeError::Denied`], unless the configuration lets the source write.
    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), NodeError>;
}
