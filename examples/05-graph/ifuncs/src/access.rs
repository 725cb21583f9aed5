//! Ifuncs that set columns and read arrays: the source prepares the algorithms with them, and compares results.

use ifunc::prelude::*;
use ifunc::zerocopy::IntoBytes;

use crate::{Graph, LEVELS, RANKS};

/// The payload of [`fill_column()`].
#[ifunc::layout]
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Number of the column.
    pub column: u64,
    /// What each word becomes.
    pub value: u64,
}

/// Sets all words of a column.
#[ifunc(idempotent)]
pub fn fill_column(fill: Fill, graph: &mut dyn Graph) {
    graph.column(fill.column as u32).fill(fill.value);
}

/// What can be read from a server.
#[ifunc::layout]
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Array {
    /// [`Graph::offsets`].
    Offsets,
    /// [`Graph::targets`].
    Targets,
    /// The column [`LEVELS`].
    Levels,
    /// The column [`RANKS`].
    Ranks,
}

/// The payload of [`fetch_page()`].
#[ifunc::layout]
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Which array.
    pub array: Array,
    /// First byte.
    pub from: u64,
}

/// Answers bytes of an array, as many as fit into an answer; none at the end.
#[ifunc(idempotent)]
pub fn fetch_page(page: Page, graph: &mut dyn Graph, ctx: &mut Context) {
    let bytes = match page.array {
        Array::Offsets => graph.offsets().as_bytes(),
        Array::Targets => graph.targets().as_bytes(),
        Array::Levels => graph.column(LEVELS).as_bytes(),
        Array::Ranks => graph.column(RANKS).as_bytes(),
    };
    let bytes = bytes.get(page.from as usize..).unwrap_or_default();
    ctx.answer_with(|space| {
        let len = bytes.len().min(space.len());
        space[..len].copy_from_slice(&bytes[..len]);
        len
    });
}
