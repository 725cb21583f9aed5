//! Named regions of the node's memory.

use core::ops::ControlFlow;

use crate::NodeError;

/// Named regions of the node's memory. They live as long as the daemon, or until they are removed, whoever connects meanwhile.
///
/// A region is a row of bytes. Each call is atomic for the others: a write is seen whole or not at all.
#[ifunc::interface(name = "ifuncd_memory")]
pub trait Memory {
    /// Makes a region of `len` bytes, all zero. If there is one of this name and length, it stays as it is.
    ///
    /// # Errors
    /// [`NodeError::Conflict`]: there is one of another length; [`NodeError::Quota`]; as for every call, it is not allowed or too frequent.
    fn create_region(&self, name: &str, len: u64) -> Result<(), NodeError>;

    /// Removes a region.
    ///
    /// # Errors
    /// [`NodeError::NotFound`]; as for every call.
    fn remove_region(&self, name: &str) -> Result<(), NodeError>;

    /// The length of a region in bytes.
    ///
    /// # Errors
    /// As [`remove_region`](Self::remove_region).
    fn region_len(&self, name: &str) -> Result<u64, NodeError>;

    /// Reads the bytes at an offset.
    ///
    /// # Errors
    /// [`NodeError::Range`]: they do not lie within the region; otherwise as [`remove_region`](Self::remove_region).
    fn load(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<(), NodeError>;

    /// Writes the bytes at an offset.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn store(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), NodeError>;

    /// Adds to the 64-bit number (little-endian) at an offset, and returns what it was. It wraps around.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn fetch_add(&self, name: &str, offset: u64, value: u64) -> Result<u64, NodeError>;

    /// Replaces the 64-bit number at an offset if it is `expected`. Returns what it was: if that is `expected`, it was replaced.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn compare_swap(&self, name: &str, offset: u64, expected: u64, new: u64) -> Result<u64, NodeError>;

    /// Calls `each` with the name and the length of every region of the namespace, until it breaks. Returns how many there were.
    ///
    /// # Errors
    /// As for every call.
    fn regions(&self, each: &mut dyn FnMut(&str, u64) -> ControlFlow<()>) -> Result<u64, NodeError>;
}
