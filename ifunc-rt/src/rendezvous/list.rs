//! Lists of addresses by rank, as text.

use crate::transport::address::{Address, AddressError};

/// Scheme of an address that is given as `HOST:PORT`.
pub(super) fn scheme(transport: Option<&str>) -> &'static str {
    match transport {
        Some("ucx-put") => "ucx-put",
        _ => "ucx",
    }
}

/// Parses addresses separated by commas or white space; a `#` starts a comment until the end of the line.
pub(super) fn parse(text: &str, scheme: &str) -> Result<Vec<Address>, AddressError> {
    let lines = text
        .lines()
        .map(|line| line.split_once('#').map_or(line, |(before, _)| before));
    let words = lines.flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
    words
        .filter(|word| !word.is_empty())
        .map(|word| address(word, scheme))
        .collect()
}

/// An address, or `HOST:PORT`.
pub(super) fn address(text: &str, scheme: &str) -> Result<Address, AddressError> {
    match text.parse() {
        // A host has no name that could be a transport's and a port no letters: `HOST:PORT` has a scheme that is none.
        Err(AddressError::Scheme(_)) if text.contains(':') => format!("{scheme}://{text}").parse(),
        parsed => parsed,
    }
}
