//! A key-value server and its clients: what a figure asks of the programs, and what they say.

use serde::{Deserialize, Serialize};

/// Records of a server. Their keys are the numbers below.
pub(crate) const RECORDS: u64 = 100_000;
/// Records that a scan looks at.
pub(crate) const SCANNED: u64 = 100;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Get,
    Put,
    Scan,
    Add,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Get, Self::Put, Self::Scan, Self::Add];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Scan => "scan with a predicate",
            Self::Add => "read-modify-write",
        }
    }
}

/// What a server says when it listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: String,
    /// The process that serves.
    pub(crate) process: u32,
}

/// A slot of the clients, each of which has one operation under way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) operations: u64,
    /// Whether each operation is timed, which costs two clock readings.
    pub(crate) timed: bool,
}

/// A request to a server that polls, and would keep the others from their core between its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Turn {
    Begin,
    /// It replies when it polls no more.
    End,
}
