//! An ifunc of a client that was built against the first version of the server. Its copy of the server's error enum has two variants
//! less than the server's own has today.

#![no_std]

use ifunc::prelude::*;

/// The server's data.
#[derive(Opaque)]
#[opaque("timeseries/1")]
pub struct Database(ifunc::Foreign);

/// The errors of the server, as they were.
#[derive(Layout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum DbError {
    /// There is no such series.
    NoSeries = 1,
    /// Times do not ascend.
    Order = 2,
    /// What a later version of the server reports.
    #[layout(other)]
    Other = -1,
}

#[ifunc::import]
unsafe extern "C" {
    /// Appends rows to a series. Returns how many it has.
    safe fn series_append(
        db: &mut Database,
        series: &str,
        times: &[i64],
        values: &[f64],
    ) -> Result<u64, DbError>;
}

/// What came of an append, as a number: of rows, or of the error.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Rows of the series, if it worked.
    pub rows: u64,
    /// 0, or the number of the error as this client knows it.
    pub error: i64,
}

/// Appends rows.
#[ifunc]
pub fn first_append((series, times, values): (&str, &[i64], &[f64]), db: &mut Database) -> Appended {
    match series_append(db, series, times, values) {
        Ok(rows) => Appended { rows, error: 0 },
        Err(error) => Appended {
            rows: 0,
            error: error as i64,
        },
    }
}
