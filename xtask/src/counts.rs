//! How many tests passed and failed, as Rust's test harness counts them.

use std::fmt;

/// What a test says besides its result, and the summary repeats.
const REMARK: &str = "first run of a new project: ";
/// What a test says that means nothing over a transport; the summary has their number.
const NOT_TESTED: &str = "not tested over ";

/// Tests by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            ignored,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {ignored} ignored")
    }
}

impl Counts {
    /// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for part in rest.split("; ") {
            match part.split_once(' ') {
                Some((n, "passed")) => counts.passed = n.parse().ok()?,
                Some((n, "failed")) => counts.failed = n.parse().ok()?,
                Some((n, "ignored")) => counts.ignored = n.parse().ok()?,
                _ => {}
            }
        }
        Some(counts)
    }
}

/// What the output of test programs says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    remarks: Vec<String>,
    not_tested: u64,
}

impl Tally {
    /// Takes a line of the output.
    pub(crate) fn read(&mut self, line: &str) {
        // The harness may have begun the line.
        if let Some(at) = line.find(REMARK) {
            self.remarks.push(line[at..].trim().to_owned());
        }
        self.not_tested += u64::from(line.contains(NOT_TESTED));
        if let Some(counts) = Counts::parse(line) {
            self.count(counts);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.count(other.counts);
        self.remarks.extend(other.remarks.iter().cloned());
        self.not_tested += other.not_tested;
    }

    fn count(&mut self, counts: Counts) {
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.ignored += counts.ignored;
    }

    /// One line of it.
    pub(crate) fn note(&self) -> String {
        let mut note = self.counts.to_string();
        for remark in &self.remarks {
            note = format!("{note}; {remark}");
        }
        if self.not_tested > 0 {
            note = format!(
                "{note}; {} of them not over this transport, as they say",
                self.not_tested
            );
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Tally};

    #[test]
    fn counts_what_the_harness_prints() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        let counts = Counts {
            passed: 5,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(Counts::parse(line), Some(counts));
        assert_eq!(Counts::parse("running 5 tests"), None);

        let mut tally = Tally::default();
        for line in [line, "test a ... not tested over ucx: why", line] {
            tally.read(line);
        }
        assert_eq!(
            tally.note(),
            "10 passed, 4 failed, 2 ignored; 1 of them not over this transport, as they say"
        );
    }
}
