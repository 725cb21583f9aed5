//! An ifunc on a type that only its host knows.

use ifunc::prelude::*;

/// A series of numbers, in the host's memory.
#[derive(Opaque)]
#[opaque("series/1")]
pub struct Series(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Appends a number and returns how many there are.
    safe fn series_push(series: &mut Series, number: u64) -> u64;
}

/// Appends each number up to `count`.
#[ifunc]
pub fn t_series(count: u64, series: &mut Series) -> u64 {
    (0..count).fold(0, |_, number| series_push(series, number))
}
