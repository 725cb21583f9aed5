//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Other users may change the file.
    #[error("the configuration `{path}` may be changed by other users ({why}); help: `chown` it to root or to the daemon's user, `chmod o-w {path}`", path = path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Who may change it.
        why: String,
    },
    /// Lines of the file are wrong.
    #[error("{}", listed(.0))]
    Lines(Vec<Problem>),
}

fn listed(problems: &[Problem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("\n\n")
}

/// What is wrong with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Number of the line, counted from 1.
    pub line: usize,
    /// Number of the character in it, counted from 1.
    pub column: usize,
    /// The key: `store.file`, `peer.capabilities`.
    pub key: String,
    /// What is wrong.
    pub why: String,
    /// What to write instead.
    pub help: Option<String>,
    /// The line, and how many characters of it are wrong.
    text: String,
    width: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, column) = (self.path.display(), self.line, self.column);
        write!(f, "{path}:{line}:{column}: ")?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        writeln!(f, "{}", self.why)?;
        writeln!(f, "{line:5} | {}", self.text)?;
        write!(f, "      | {:>column$}", "^")?;
        for _ in 1..self.width {
            write!(f, "^")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

/// The text of a configuration, and what is wrong with it.
pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Notes what is wrong at a place of the text.
    pub(super) fn note(&mut self, key: &str, span: Range<usize>, why: String, help: Option<String>) {
        let problem = self.problem(key, span, why, help);
        self.problems.push(problem);
    }

    /// What is wrong at a place of the text.
    pub(super) fn problem(
        &self,
        key: &str,
        span: Range<usize>,
        why: String,
        help: Option<String>,
    ) -> Problem {
        let start = self.text.floor_char_boundary(span.start.min(self.text.len()));
        let before = &self.text[..start];
        let line = before.matches('\n').count() + 1;
        let begins = before.rfind('\n').map_or(0, |newline| newline + 1);
        let text = self.text[begins..].lines().next().unwrap_or_default();
        let column = self.text[begins..start].chars().count() + 1;
        let rest = text.chars().count().saturating_sub(column - 1);
        let end = self
            .text
            .floor_char_boundary(span.end.clamp(start, self.text.len()));
        let width = self.text[start..end].chars().count().min(rest).max(1);
        Problem {
            path: self.path.to_owned(),
            line,
            column,
            key: key.to_owned(),
            why,
            help,
            text: text.trim_end().to_owned(),
            width,
        }
    }

    /// The key of the value at a place: the table that the place is in, and what is before the `=`.
    pub(super) fn key_at(&self, at: usize) -> String {
        let at = self.text.floor_char_boundary(at.min(self.text.len()));
        let begins = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[begins..].lines().next().unwrap_or_default().trim();
        let table = |line: &str| {
            let inner = line.strip_prefix('[')?.split(']').next()?;
            Some(inner.trim_start_matches('[').trim().to_owned())
        };
        if let Some(table) = table(line) {
            return table;
        }
        let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
        let within = self.text[..begins]
            .lines()
            .rev()
            .find_map(|line| table(line.trim()));
        match within {
            Some(table) => format!("{table}.{key}"),
            None => key.to_owned(),
        }
    }
}
