//! What travels: two ways to choose lines of a text that the target owns. The target lets them read; of patterns it knows
//! nothing.
//!
//! Both look through the lines from a position on and answer a [`Page`]: what they chose, as much as an answer may hold,
//! and where the next page begins. A page needs nothing of the one before it, so that either may be run again.

#![no_std]

extern crate alloc;

pub mod fold;
mod page;
mod pattern;

use alloc::vec::Vec;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

/// Longest part of a line that is answered, in bytes.
pub const MAX_SHOWN: usize = 4 << 10;

/// The target's text: from here, only a name.
#[derive(Opaque)]
#[opaque("document/1")]
pub struct Document(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Reads from `offset` on, as much as fits. Answers how many bytes that is: 0 at the end, or an error number.
    safe fn read_document(document: &Document, offset: u64, into: &mut [u8]) -> Result<u64, i32>;
}

/// Where a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Position {
    /// In bytes.
    pub offset: u64,
    /// Number of the line; the first is 1.
    pub line: u64,
}

impl Position {
    /// Where a text begins.
    pub const START: Self = Self { offset: 0, line: 1 };
}

/// A line that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Match {
    /// Where it begins.
    pub at: Position,
    /// Its length in bytes, without the line end.
    pub len: u64,
    /// Its first bytes: all, or [`MAX_SHOWN`]. Whether they are UTF-8, nobody asked.
    pub text: Vec<u8>,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Page {
    /// The lines, in order.
    pub matches: Vec<Match>,
    /// How many bytes were looked at.
    pub searched: u64,
    /// Where the next page begins; `None` at the end of the text.
    pub next: Option<Position>,
}

/// What to search for: a regular expression.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Search<'a> {
    /// Where the page begins.
    pub from: Position,
    /// The expression, compiled on the source.
    #[serde(borrow)]
    pub dfa: Dfa<'a>,
}

/// A deterministic automaton, as regex-automata writes it: no pattern is parsed on the target.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Dfa<'a> {
    /// A table. The fastest, and large where a pattern knows all of Unicode.
    Dense(&'a [u8]),
    /// What of the table is not empty.
    Sparse(&'a [u8]),
}

/// Chooses the lines that match a regular expression.
#[ifunc(codec = postcard, idempotent)]
pub fn search(wanted: Search<'_>, document: &Document, ctx: &mut Context) -> Page {
    let (read, room) = (reader(document), ctx.answer_capacity());
    match wanted.dfa {
        Dfa::Dense(bytes) => {
            let words = pattern::aligned(bytes);
            let mut pattern = pattern::dense(&words, bytes.len());
            page::choose(read, wanted.from, room, &mut pattern)
        }
        Dfa::Sparse(bytes) => page::choose(read, wanted.from, room, &mut pattern::sparse(bytes)),
    }
}

/// What to search for: a text, in whichever case.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct SearchFolded<'a> {
    /// Where the page begins.
    pub from: Position,
    /// The text; nothing in it has a special meaning.
    pub needle: &'a str,
}

/// Chooses the lines that contain a text in whichever case.
#[ifunc(codec = postcard, idempotent)]
pub fn search_folded(wanted: SearchFolded<'_>, document: &Document, ctx: &mut Context) -> Page {
    let needle = fold::folded(wanted.needle);
    let mut folded = fold::Folded::new(&needle);
    page::choose(reader(document), wanted.from, ctx.answer_capacity(), &mut folded)
}

fn reader(document: &Document) -> impl Fn(u64, &mut [u8]) -> usize {
    |offset, into| match read_document(document, offset, into) {
        // The host is trusted; an index is checked all the same.
        Ok(len) => (len as usize).min(into.len()),
        Err(number) => panic!("the target cannot read its text: error {number}"),
    }
}
