//! Clocks, random numbers and the log of the node.

use ifunc::prelude::*;

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

/// How important a line is.
#[derive(Layout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something unexpected happened.
    Warn = 2,
    /// Normal progress.
    Info = 3,
}

/// The log of the node.
#[ifunc::interface(name = "ifuncd_log")]
pub trait Log {
    /// Writes a line of at most 4 KiB, with the name of the source. What is longer is cut.
    ///
    /// # Errors
    /// It is not allowed or too frequent.
    fn log(&self, level: LogLevel, line: &str) -> Result<(), NodeError>;
}
