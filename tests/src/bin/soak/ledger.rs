//! What the target owns: the layout that the ifuncs of `tests/ifuncs/src/soak` know.

use ifunc::prelude::*;

/// More connections than this, while another stays open, would take its slot.
pub(crate) const SLOTS: usize = 4096;
/// How many sources have a ledger on one target.
pub(crate) const SOURCES: usize = 64;

/// A connection that is open.
#[derive(Clone, Copy, Layout)]
#[repr(C)]
pub(crate) struct Slot {
    sender: u64,
    source: u64,
    count: u64,
    hash: u64,
}

/// A source, over all connections that it closed.
#[derive(Clone, Copy, Layout)]
#[repr(C)]
pub(crate) struct Total {
    messages: u64,
    connections: u64,
    hash: u64,
}

/// The ledger.
#[derive(Layout)]
#[repr(C)]
pub(crate) struct Ledger {
    slots: [Slot; SLOTS],
    totals: [Total; SOURCES],
    faults: u64,
    first: [u64; 4],
    abandoned: u64,
    rounds: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        let slot = Slot {
            sender: 0,
            source: 0,
            count: 0,
            hash: 0,
        };
        let total = Total {
            messages: 0,
            connections: 0,
            hash: 0,
        };
        Self {
            slots: [slot; SLOTS],
            totals: [total; SOURCES],
            faults: 0,
            first: [0; 4],
            abandoned: 0,
            rounds: 0,
        }
    }
}

/// Opens and closes the ledger: operations of `t_soak_turn`.
pub(crate) mod turn {
    /// Hello, from this source.
    pub(crate) const HELLO: u64 = 0;
    /// Goodbye: count, hash.
    pub(crate) const GOODBYE: u64 = 1;
    /// What a source sent.
    pub(crate) const TOTAL: u64 = 2;
    /// What is not as it must be.
    pub(crate) const FAULTS: u64 = 3;

    /// The payload of an operation.
    pub(crate) fn payload(operation: u64, a: u64, b: u64) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (out, word) in bytes.chunks_exact_mut(8).zip([operation, a, b, 0]) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The numbers in an answer.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    if bytes.len() != 8 * N {
        return None;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}
