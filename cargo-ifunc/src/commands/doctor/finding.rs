//! The result of a check.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mark {
    /// Present and working.
    Ok,
    /// Absent; nothing requires it.
    None,
    /// Works with restrictions, or for some uses only.
    Warning,
    /// Required and absent.
    Missing,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) mark: Mark,
    /// What the check found.
    pub(super) found: String,
    /// The command or change that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
}

impl Finding {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            mark: Mark::Ok,
            found: found.into(),
            help: None,
        }
    }

    pub(super) fn none(name: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self::ok(name, found).but(Mark::None, help)
    }

    pub(super) fn warning(name: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self::ok(name, found).but(Mark::Warning, help)
    }

    pub(super) fn missing(name: &'static str, found: impl Into<String>, help: impl Into<String>) -> Self {
        Self::ok(name, found).but(Mark::Missing, help)
    }

    fn but(self, mark: Mark, help: impl Into<String>) -> Self {
        Self {
            mark,
            help: Some(help.into()),
            ..self
        }
    }
}

/// Standard output of a program; `None` if it does not start or fails.
pub(super) fn output_of<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Option<String> {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words).args(args).stdin(Stdio::null());
    let output = command.output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A kernel setting in `/proc/sys`.
pub(super) fn setting(path: &str) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    text.trim().parse().ok()
}

/// A readable number of bytes.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..=0xffff => format!("{n} bytes"),
        0x1_0000..=0xff_ffff => format!("{} KiB", n >> 10),
        0x100_0000..=0xffff_ffff => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_arguments() {
        assert_eq!(output_of("echo one", ["two"]).as_deref(), Some("one two\n"));
        assert_eq!(output_of("false", [""; 0]), None);
        assert_eq!(output_of("there is no such program", [""; 0]), None);
        assert_eq!(output_of("", [""; 0]), None);
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(8192 << 10), "8192 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(100), "100 bytes");
        assert_eq!(bytes(5 << 30), "5 GiB");
    }
}
