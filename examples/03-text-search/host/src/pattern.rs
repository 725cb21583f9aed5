//! Compiling a pattern to the form that travels.

use std::error::Error;

use example_03_text_search_ifuncs::Dfa;
use regex_automata::MatchKind;
use regex_automata::dfa::StartKind;
use regex_automata::dfa::dense::{Builder, Config};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

/// Largest DFA in bytes.
const LARGEST: usize = 16 << 20;
/// Largest DFA in bytes that travels as a table: it travels with every page.
const LARGEST_TABLE: usize = 64 << 10;
/// Memory limit for building the DFA.
const SCRATCH: usize = 32 << 20;
/// Memory limit of the NFA that the DFA is built from: nested repetitions make it large and slow.
const LARGEST_NFA: usize = 2 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub enum Compiled {
    /// As [`Dfa::Dense`].
    Dense(Vec<u8>),
    /// As [`Dfa::Sparse`].
    Sparse(Vec<u8>),
}

impl Compiled {
    /// The form that travels.
    #[must_use]
    pub fn dfa(&self) -> Dfa<'_> {
        match self {
            Self::Dense(bytes) => Dfa::Dense(bytes),
            Self::Sparse(bytes) => Dfa::Sparse(bytes),
        }
    }
}

/// Compiles a regular expression. Lines may contain any bytes: only `(?-u:.)` and similar match bytes that
/// are not UTF-8.
///
/// # Errors
/// The expression is invalid or yields no DFA of acceptable size; the message has a remedy.
pub fn compile(pattern: &str) -> Result<Compiled, Box<dyn Error>> {
    let dfa = Builder::new()
        .configure(
            Config::new()
                // The search needs no match position, so it may stop at the first match.
                .match_kind(MatchKind::LeftmostFirst)
                .start_kind(StartKind::Unanchored)
                .dfa_size_limit(Some(LARGEST))
                .determinize_size_limit(Some(SCRATCH)),
        )
        .syntax(syntax::Config::new().utf8(false))
        .thompson(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(LARGEST_NFA)),
        )
        .build(pattern)
        .map_err(|e| explained(pattern, &e))?;
    let (mut bytes, padding) = dfa.to_bytes_native_endian();
    bytes.drain(..padding);
    if bytes.len() <= LARGEST_TABLE {
        return Ok(Compiled::Dense(bytes));
    }
    let sparse = dfa.to_sparse().map_err(|e| explained(pattern, &e))?;
    Ok(Compiled::Sparse(sparse.to_bytes_native_endian()))
}

/// The error with all its causes and a remedy.
fn explained(pattern: &str, error: &dyn Error) -> String {
    let mut text = format!("`{pattern}` cannot be searched for: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("\n{error}"));
        cause = error.source();
    }
    text.push_str(if text.contains("word bound") {
        "\nhelp: write `(?-u:\\b)` for `\\b`: it considers ASCII letters only"
    } else if text.contains("limit") {
        "\nhelp: use fewer or shorter repetitions, or prefix `(?-u)`, which restricts `\\w` and `.` to ASCII"
    } else {
        "\nhelp: the syntax is that of https://docs.rs/regex; `\\` escapes a special character"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::{Compiled, compile};

    #[test]
    fn small_tables_travel_dense() {
        assert!(matches!(compile("error").unwrap(), Compiled::Dense(_)));
        assert!(matches!(compile(r"struct \w+").unwrap(), Compiled::Sparse(bytes) if bytes.len() < 64 << 10));
    }

    #[test]
    fn errors_come_with_a_remedy() {
        for (pattern, parts) in [
            ("a(b", ["unclosed group", "help: the syntax"]),
            (r"\bword\b", ["word bound", "(?-u:\\b)"]),
            (r"(\w{50}){50}", ["limit", "help: use fewer"]),
        ] {
            let error = compile(pattern).unwrap_err().to_string();
            assert!(
                parts.iter().all(|part| error.contains(part)),
                "{pattern}: {error}"
            );
        }
    }
}
