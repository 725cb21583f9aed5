//! The ifuncs of a client that knows its files better than the node on which they are: they parse and aggregate where the bytes are.

#![no_std]

extern crate alloc;

mod lines;
mod table;

use alloc::vec::Vec;
use core::ops::ControlFlow;

use ifunc::prelude::*;
use ifuncd_interfaces::Files;

pub use lines::Lines;
pub use table::Table;

/// What is known of a sensor: an answer has one for each.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Number of the sensor.
    pub sensor: u64,
    /// Its rows.
    pub rows: u64,
    /// The sum of their values, in hundredths.
    pub sum: i64,
    /// The least of them.
    pub min: i64,
    /// The greatest.
    pub max: i64,
}

/// Parses the lines of a CSV file that begin between two offsets, and groups them by sensor. A line that does not parse is left out.
#[ifunc(idempotent)]
pub fn aggregate((path, from, to): (&str, u64, u64), files: &dyn Files) -> Option<Vec<Group>> {
    let mut table = Table::default();
    // The line before may end after `from`: it is complete where that offset is in the middle of it.
    let mut lines = Lines::from_offset(from, to);
    let begin = lines.begin();
    let read = files.read_each(path, begin, u64::MAX, &mut |piece| {
        lines.add(piece, &mut |line| table.add(line))
    });
    if read.is_err() {
        return None;
    }
    lines.end(&mut |line| table.add(line));
    Some(table.into_groups())
}

/// A part of a file: what a client without a parser on the node fetches.
#[ifunc(idempotent)]
pub fn fetch_part((path, from, len): (&str, u64, u64), files: &dyn Files, ctx: &mut Context) {
    let mut answer = ctx.answer_writer();
    let _ = files.read_each(path, from, len, &mut |piece| match answer.write(piece) {
        Ok(()) => ControlFlow::Continue(()),
        // The answer is too long for this node: the error of the call names the limit.
        Err(_) => ControlFlow::Break(()),
    });
}

/// The length of a file.
#[ifunc(idempotent)]
pub fn length(path: &str, files: &dyn Files) -> Option<u64> {
    files.file_len(path).ok()
}
