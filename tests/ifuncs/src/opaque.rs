//! An ifunc on a type that only its host knows.

use ifunc::Owned;
use ifunc::prelude::*;

/// A series of numbers, in the host's memory.
#[derive(Opaque)]
#[opaque("series/1")]
pub struct Series(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Appends a number and returns how many there are.
    safe fn series_push(series: &mut Series, number: u64) -> u64;
    /// Lends all numbers.
    safe fn numbers_column(numbers: &Numbers) -> &[u64];
    /// Lends some of them.
    safe fn numbers_part(numbers: &Numbers, from: u64, to: u64) -> Result<&[u64], i32>;
    /// Lends the name, if it has one.
    safe fn numbers_name(numbers: &Numbers) -> Option<&str>;
    /// A cursor, which the ifunc holds.
    safe fn cursor_open(numbers: &Numbers, from: u64) -> Result<Owned<Cursor>, i32>;
    /// The next number.
    safe fn cursor_next(cursor: &mut Cursor) -> Option<u64>;
    /// Ends a cursor. Returns how many numbers it did not reach.
    safe fn cursor_close(cursor: Owned<Cursor>) -> u64;
    /// A cursor without numbers, every second time.
    safe fn cursor_empty(try_number: u64) -> Option<Owned<Cursor>>;
}

/// Numbers, in the host's memory.
#[derive(Opaque)]
#[opaque("numbers/1")]
pub struct Numbers(ifunc::Foreign);

/// A cursor of the host's.
#[derive(Opaque)]
#[opaque("cursor/1")]
pub struct Cursor(ifunc::Foreign);

/// Adds all numbers, in the host's own memory: answers the sum, and where the numbers lie.
#[ifunc]
pub fn t_scan(_: (), numbers: &mut Numbers) -> (u64, u64, u64) {
    let column = numbers_column(numbers);
    let half = numbers_part(numbers, 0, column.len() as u64 / 2).unwrap_or_default();
    let name = numbers_name(numbers).map_or(0, |name| name.len() as u64);
    assert_eq!(numbers_part(numbers, 0, u64::MAX), Err(7));
    let sum = column.iter().sum::<u64>() + half.iter().sum::<u64>();
    (sum, column.as_ptr().addr() as u64, name)
}

/// Adds numbers by cursors, and ends as it is told to.
#[ifunc]
pub fn t_cursor(end: u64, numbers: &mut Numbers) -> u64 {
    assert!(cursor_open(numbers, u64::MAX).is_err());
    let (Ok(mut cursor), Ok(mut other)) = (cursor_open(numbers, 0), cursor_open(numbers, 1)) else {
        return 0;
    };
    let mut sum = cursor_next(&mut cursor).unwrap_or(0) + cursor_next(&mut other).unwrap_or(0);
    match end {
        0 => {
            while let Some(number) = cursor_next(&mut cursor) {
                sum += number;
            }
        }
        1 => sum += 100 * cursor_close(other) + 10_000 * cursor_close(cursor),
        2 => panic!("it holds two cursors"),
        4 => {
            let nowhere = core::ptr::without_provenance::<u64>(core::hint::black_box(24));
            // SAFETY: none: the fault is what is tested.
            sum += unsafe { nowhere.read_volatile() };
        }
        5 => loop {
            core::hint::spin_loop();
        },
        _ => {
            drop(cursor);
            sum += (0..10).filter(|&n| cursor_empty(n).is_some()).count() as u64;
        }
    }
    sum
}

/// Appends each number up to `count`.
#[ifunc]
pub fn t_series(count: u64, series: &mut Series) -> u64 {
    (0..count).fold(0, |_, number| series_push(series, number))
}
