//! Reads the target's ledger.

use ifunc_tests::role::Role;

use super::options::Options;
use super::process;

/// A source that reads them.
pub(super) struct Audit(Role);

impl Audit {
    pub(super) fn new(options: &Options, address: &str) -> Result<Self, String> {
        process::start(options, "auditor", &[("address", address.to_owned())]).map(Self)
    }

    fn ask<const N: usize>(&mut self, question: &str) -> Result<[u64; N], String> {
        self.0.tell(question)?;
        let operation = question.split(' ').next().unwrap_or_default();
        let answer = self.0.wait_for(&format!("{operation} "))?;
        let numbers: Vec<u64> = answer
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers
            .try_into()
            .map_err(|_| format!("the ledger answers `{answer}` to `{question}`"))
    }

    /// Messages, connections and hash of a source.
    pub(super) fn total(&mut self, source: u64) -> Result<[u64; 3], String> {
        self.ask(&format!("total {source}"))
    }

    /// Connections that are open in the ledger, and those that were abandoned. An error if anything is not as it must
    /// be.
    pub(super) fn open(&mut self) -> Result<[u64; 2], String> {
        self.ask("open")
    }

    pub(super) fn end(self) -> Result<(), String> {
        self.0.end()
    }
}
