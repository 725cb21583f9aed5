//! Clocks, random numbers and the log of the node.

use crate::NodeError;

/// The clocks of the node.
#[ifunc::interface(name = "ifuncd_clock")]
pub trait Clock {
    /// Nanoseconds since the beginning of 1970.
    ///
    /// # Errors
    /// It is not allowed or too frequent.
    fn unix_time(&self) -> Result<u64, NodeError>;

    /// Nanoseconds on a clock that never goes back.
    ///
    /// # Errors
    /// It is not allowed or too frequent.
    fn monotonic_time(&self) -> Result<u64, NodeError>;
}

/// Random numbers of the node's kernel.
#[ifunc::interface(name = "ifuncd_random")]
pub trait Random {
    /// Fills the bytes, at most 64 KiB, with random ones.
    ///
    /// # Errors
    /// [`NodeError::Range`]: they are more; it is not allowed or too frequent.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), NodeError>;
}

/// The log of the node. A line has at most 4 KiB, and the name of the source; what is longer is cut.
#[ifunc::interface(name = "ifuncd_log")]
pub trait Log {
    /// Normal progress.
    ///
    /// # Errors
    /// It is not allowed or too frequent.
    fn info(&self, line: &str) -> Result<(), NodeError>;

    /// Something unexpected.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    fn warn(&self, line: &str) -> Result<(), NodeError>;

    /// A failure.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    fn error(&self, line: &str) -> Result<(), NodeError>;
}
