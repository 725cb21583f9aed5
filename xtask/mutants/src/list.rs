//! The mutants that there are, by `cargo mutants`.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::root;

/// A mutant, as `cargo mutants --list --json` describes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) file: String,
    pub(crate) genre: Genre,
    /// `FILE:LINE:COLUMN: what is replaced in which function`
    pub(crate) name: String,
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

impl Mutant {
    /// The name without its line and column, which change with what is above.
    pub(crate) fn lasting_name(&self) -> String {
        let mut parts = self.name.splitn(4, ':');
        let (file, what) = (parts.next().unwrap_or(""), parts.nth(2).unwrap_or(""));
        format!("{file}:{what}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    #[serde(other)]
    Other,
}

/// What is replaced. Lines and columns count from 1; columns are characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Position,
    pub(crate) end: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The mutants of a package, or of the files that a pattern names.
pub(crate) fn list(package: &str, files: Option<&str>) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["mutants", "--list", "--json", "--package", package]);
    if let Some(files) = files {
        command.args(["--file", files]);
    }
    command
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command
        .output()
        .map_err(|error| format!("cargo mutants: {error}"))?;
    if !output.status.success() {
        return Err(
            "`cargo mutants` is missing, or failed\nhelp: cargo install cargo-mutants --locked".into(),
        );
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("the list of `cargo mutants`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::Mutant;

    #[test]
    fn a_name_lasts_without_its_position() {
        let text = r#"{"file":"a/b.rs","genre":"StructField","name":"a/b.rs:3:14: replace a::b -> c with d",
            "replacement":"d","span":{"start":{"line":3,"column":14},"end":{"line":3,"column":15}}}"#;
        let mutant: Mutant = serde_json::from_str(text).unwrap();
        assert_eq!(mutant.lasting_name(), "a/b.rs: replace a::b -> c with d");
    }
}
