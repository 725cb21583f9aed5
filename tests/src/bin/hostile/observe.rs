//! What the kernel says of the target.

use std::fmt;
use std::fs;

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    /// Private memory in use, and memory that is shared with others, in KiB.
    pub(crate) private: u64,
    pub(crate) shared: u64,
}

impl Holdings {
    /// Of a process, now.
    pub(crate) fn of(pid: u32) -> Result<Self, String> {
        let failed = |error| format!("the target is gone: {error}");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed)?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':')
                .trim()
                .split(' ')
                .next()?
                .parse()
                .ok()
        };
        Ok(Self {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)?.count(),
            private: field("RssAnon").unwrap_or(0),
            shared: field("RssShmem").unwrap_or(0),
        })
    }

    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            private: self.private.max(other.private),
            shared: self.shared.max(other.shared),
        }
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            descriptors,
            private,
            shared,
        } = self;
        write!(f, "{descriptors} descriptors, {private} KiB, {shared} KiB shared")
    }
}
