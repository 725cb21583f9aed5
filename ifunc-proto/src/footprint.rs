//! What a connection holds.

/// What a connection holds at a moment. Each number is bounded, whatever the peer sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Frames that arrived ahead of their turn, and bytes of their bodies.
    pub parked: (usize, usize),
    /// Replies that wait for the send window in frames of their own.
    pub replies: usize,
    /// Replies that wait and whose requests traveled.
    pub late: usize,
    /// Bytes of the open batch.
    pub batch: usize,
    /// Bytes of a body that arrives in fragments.
    pub assembled: usize,
    /// Tokens in use.
    pub calls: usize,
    /// Reports that were not taken.
    pub reports: usize,
}
