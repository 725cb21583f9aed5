//! Many sources of one target: what a figure asks of their program, and what it says.

use serde::{Deserialize, Serialize};

/// A slot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Messages of all sources together.
    pub(crate) messages: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Nanoseconds per message, until the target has consumed the last one.
    pub(crate) ns: f64,
    /// Messages of the source that has sent the fewest.
    pub(crate) slowest: u64,
    /// Messages of the source that has sent the most.
    pub(crate) fastest: u64,
}
