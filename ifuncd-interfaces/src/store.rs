//! Keys and values on the node's disk.

use core::ops::ControlFlow;

use crate::NodeError;

/// Keys and values on the node's disk, in the order of the keys. Keys have at most 1024 bytes.
///
/// Each change is a transaction: after a crash it is there or not, and never half. Whether it is on the disk when the call returns is said by
/// `durability` in the daemon's configuration.
#[ifunc::interface(name = "ifuncd_store")]
pub trait Store {
    /// Stores a value, and replaces what the key had.
    ///
    /// # Errors
    /// The quota is used up.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), NodeError>;

    /// Copies as much of the value of a key as has room, and returns the length of the whole value.
    ///
    /// # Errors
    /// [`NodeError::NotFound`]: the key has none. As for every call: it is not allowed, too frequent, or the system failed.
    fn get(&self, key: &[u8], value: &mut [u8]) -> Result<usize, NodeError>;

    /// Removes a key.
    ///
    /// # Errors
    /// [`NodeError::NotFound`]: it has no value. As for every call.
    fn delete(&self, key: &[u8]) -> Result<(), NodeError>;

    /// Calls `each` with every key that begins with `prefix`, and its value, in order, until it breaks. Returns how many there were. They
    /// are those of one moment, whatever is stored meanwhile.
    ///
    /// # Errors
    /// As for every call.
    #[expect(
        clippy::type_complexity,
        reason = "a callback's type is what crosses: an alias would hide it"
    )]
    fn scan(
        &self,
        prefix: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<u64, NodeError>;

    /// The bytes of keys and values that the namespace has.
    ///
    /// # Errors
    /// As for every call.
    fn stored_bytes(&self) -> Result<u64, NodeError>;
}
