//! The ifuncs: two searches in a text that the target owns. The target exports a function that reads the
//! text; it contains no search code.
//!
//! Both search the lines from a position on and answer a [`Page`]: the selected lines, as many as fit into an
//! answer, and the position of the next page. A page depends on no earlier one, so an invocation may be
//! repeated.

#![no_std]

extern crate alloc;

pub mod fold;
mod page;
mod pattern;

use alloc::vec::Vec;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

/// Largest number of bytes answered per line.
pub const MAX_SHOWN: usize = 4 << 10;

/// The target's text, whose contents only the target can access.
#[derive(Opaque)]
#[opaque("document/1")]
pub struct Document(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Fills `into` from `offset` on. Returns the number of bytes read, 0 at the end, or an error number.
    safe fn read_document(document: &Document, offset: u64, into: &mut [u8]) -> Result<u64, i32>;
}

/// The position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Position {
    /// Offset in bytes.
    pub offset: u64,
    /// Line number, from 1 on.
    pub line: u64,
}

impl Position {
    /// The beginning of a text.
    pub const START: Self = Self { offset: 0, line: 1 };
}

/// A selected line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Match {
    /// Its position.
    pub at: Position,
    /// Its length in bytes, without the line end.
    pub len: u64,
    /// Its first bytes, at most [`MAX_SHOWN`]; not necessarily UTF-8.
    pub text: Vec<u8>,
}

/// The answer of both ifuncs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Page {
    /// The lines, in order.
    pub matches: Vec<Match>,
    /// Number of bytes searched.
    pub searched: u64,
    /// Position of the next page; `None` at the end of the text.
    pub next: Option<Position>,
}

/// A search for a regular expression.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Search<'a> {
    /// Position of the page.
    pub from: Position,
    /// The expression, compiled on the source.
    #[serde(borrow)]
    pub dfa: Dfa<'a>,
}

/// A deterministic automaton in regex-automata's encoding: the target parses no pattern.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Dfa<'a> {
    /// A table. Fastest, but large for patterns over all of Unicode.
    Dense(&'a [u8]),
    /// The non-empty entries of the table.
    Sparse(&'a [u8]),
}

/// Selects the lines that match a regular expression.
#[ifunc(codec = postcard, idempotent)]
pub fn search(wanted: Search<'_>, document: &Document, ctx: &mut Context) -> Page {
    let (read, capacity) = (reader(document), ctx.answer_capacity());
    match wanted.dfa {
        Dfa::Dense(bytes) => {
            let words = pattern::aligned(bytes);
            let mut pattern = pattern::dense(&words, bytes.len());
            page::choose(read, wanted.from, capacity, &mut pattern)
        }
        Dfa::Sparse(bytes) => page::choose(read, wanted.from, capacity, &mut pattern::sparse(bytes)),
    }
}

/// A search for a text in any case.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct SearchFolded<'a> {
    /// Where the page begins.
    pub from: Position,
    /// The literal text.
    pub needle: &'a str,
}

/// Selects the lines that contain a text in any case.
#[ifunc(codec = postcard, idempotent)]
pub fn search_folded(wanted: SearchFolded<'_>, document: &Document, ctx: &mut Context) -> Page {
    let needle = fold::folded(wanted.needle);
    let mut folded = fold::Folded::new(&needle);
    page::choose(reader(document), wanted.from, ctx.answer_capacity(), &mut folded)
}

fn reader(document: &Document) -> impl Fn(u64, &mut [u8]) -> usize {
    |offset, into| match read_document(document, offset, into) {
        // The host is trusted, but the index is checked nevertheless.
        Ok(len) => (len as usize).min(into.len()),
        Err(number) => panic!("the target cannot read its text: error {number}"),
    }
}
