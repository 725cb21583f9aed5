//! From a pattern to what travels of it.

use std::error::Error;

use example_03_text_search_ifuncs::Dfa;
use regex_automata::MatchKind;
use regex_automata::dfa::StartKind;
use regex_automata::dfa::dense::{Builder, Config};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

/// Largest DFA.
const LARGEST: usize = 16 << 20;
/// Largest DFA that travels as a table: it travels with every page.
const LARGEST_TABLE: usize = 64 << 10;
/// Memory that making it may take.
const SCRATCH: usize = 32 << 20;
/// Memory of what is made of it before: what repeats itself often, takes long.
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
    /// What travels.
    #[must_use]
    pub fn dfa(&self) -> Dfa<'_> {
        match self {
            Self::Dense(bytes) => Dfa::Dense(bytes),
            Self::Sparse(bytes) => Dfa::Sparse(bytes),
        }
    }
}

/// Compiles a regular expression. Lines of any bytes are searched: what in them is no UTF-8
/// matches nothing but `(?-u:.)` and its kin.
///
/// # Errors
/// The expression is none, or no DFA of reasonable size can be made of it; with what to do.
pub fn compile(pattern: &str) -> Result<Compiled, Box<dyn Error>> {
    let dfa = Builder::new()
        .configure(
            Config::new()
                // Which part of a line matches, nobody asks: that one does, is known at the first match.
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

/// The error with all its causes, and what to do.
fn explained(pattern: &str, error: &dyn Error) -> String {
    let mut text = format!("`{pattern}` cannot be searched for: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("\n{error}"));
        cause = error.source();
    }
    text.push_str(if text.contains("word bound") {
        "\nhelp: write `(?-u:\\b)` for `\\b`: it looks at letters of ASCII"
    } else if text.contains("limit") {
        "\nhelp: fewer or shorter repetitions; or `(?-u)` in front, which makes `\\w` and `.` those of ASCII"
    } else {
        "\nhelp: the syntax is that of https://docs.rs/regex; `\\` before a character takes its special meaning away"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::{Compiled, compile};

    #[test]
    fn a_table_travels_while_it_is_small() {
        assert!(matches!(compile("error").unwrap(), Compiled::Dense(_)));
        assert!(matches!(compile(r"struct \w+").unwrap(), Compiled::Sparse(bytes) if bytes.len() < 64 << 10));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        for (pattern, parts) in [
            ("a(b", ["unclosed group", "help: the syntax"]),
            (r"\bword\b", ["word bound", "(?-u:\\b)"]),
            (r"(\w{50}){50}", ["limit", "help: fewer"]),
        ] {
            let error = compile(pattern).unwrap_err().to_string();
            assert!(
                parts.iter().all(|part| error.contains(part)),
                "{pattern}: {error}"
            );
        }
    }
}
