//! The ifuncs of a client of the time-series server: they append rows, scan columns where they lie, and fetch whole columns.

#![no_std]

extern crate alloc;

mod expr;

use alloc::string::String;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

pub use expr::Expr;

/// The server's data. Ifuncs know its name alone.
#[derive(Opaque)]
#[opaque("timeseries/1")]
pub struct Database(ifunc::Foreign);

/// Why the server did not do what it was asked to. Later versions of the server add to it.
#[derive(Layout, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum DbError {
    /// There is no such series.
    NoSeries = 1,
    /// Times do not ascend.
    Order = 2,
    /// The server takes no more rows. Not in the first version.
    Full = 3,
    /// The database file reported an error. Not in the first version.
    Storage = 4,
    /// What a later version of the server reports.
    #[layout(other)]
    Other = -1,
}

#[ifunc::import]
unsafe extern "C" {
    /// Appends rows to a series, which begins with its first row. Returns how many it has.
    pub safe fn series_append(
        db: &mut Database,
        series: &str,
        times: &[i64],
        values: &[f64],
    ) -> Result<u64, DbError>;
    /// Lends the times of a series.
    pub safe fn series_times<'d>(db: &'d Database, series: &str) -> Option<&'d [i64]>;
    /// Lends the values of a series, as many as there are times.
    pub safe fn series_values<'d>(db: &'d Database, series: &str) -> Option<&'d [f64]>;
    /// Notes what was done, under an id.
    pub safe fn db_note(db: &mut Database, id: &[u8; 16], text: &str);
    /// Writes everything that is new to the database file. Returns how many rows it holds.
    pub safe fn db_commit(db: &mut Database) -> Result<u64, DbError>;
}

/// What came of a change.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Rows, if it worked.
    pub rows: u64,
    /// 0, or the number of the [`DbError`].
    pub error: i64,
}

impl From<Result<u64, DbError>> for Changed {
    fn from(result: Result<u64, DbError>) -> Self {
        match result {
            Ok(rows) => Self { rows, error: 0 },
            Err(error) => Self {
                rows: 0,
                error: error as i64,
            },
        }
    }
}

/// Appends rows.
#[ifunc]
pub fn append((series, times, values): (&str, &[i64], &[f64]), db: &mut Database) -> Changed {
    series_append(db, series, times, values).into()
}

/// Appends `rows` made-up rows, one per second: a client that tests the server need not send them.
#[ifunc]
pub fn fill((series, rows): (&str, u64), db: &mut Database) -> Changed {
    const PART: usize = 1024;
    let (mut times, mut values) = ([0; PART], [0.0; PART]);
    let mut result = Ok(0);
    for from in (0..rows).step_by(PART) {
        let len = PART.min((rows - from) as usize);
        for (n, (time, value)) in times.iter_mut().zip(&mut values).enumerate() {
            let second = from + n as u64;
            (*time, *value) = (second as i64, value_at(second));
        }
        result = series_append(db, series, &times[..len], &values[..len]);
        if result.is_err() {
            break;
        }
    }
    result.into()
}

/// The made-up value of a second.
#[must_use]
pub fn value_at(second: u64) -> f64 {
    (second.wrapping_mul(2_654_435_761) % 1000) as f64 / 10.0
}

/// The payload of [`scan()`].
#[derive(Clone, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Query {
    /// Name of the series.
    pub series: String,
    /// Rows count for which this is not 0.
    pub filter: Expr,
    /// What is summed up.
    pub of: Expr,
}

/// The answer of [`scan()`].
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Rows of the series.
    pub rows: u64,
    /// Rows that counted.
    pub selected: u64,
    /// Sum over them.
    pub sum: f64,
}

/// Evaluates a query over the columns where the server has them; `None` if there is no such series.
#[ifunc(codec = postcard, answer = zerocopy, idempotent)]
pub fn scan(query: Query, db: &Database) -> Option<Summary> {
    let times = series_times(db, &query.series)?;
    let values = series_values(db, &query.series)?;
    Some(summarize(&query, times, values))
}

/// The scan itself, which the client uses to check the server's result.
#[must_use]
pub fn summarize(query: &Query, times: &[i64], values: &[f64]) -> Summary {
    let (mut selected, mut sum) = (0, 0.0);
    for (time, value) in times.iter().zip(values) {
        if query.filter.eval(*time, *value) != 0.0 {
            selected += 1;
            sum += query.of.eval(*time, *value);
        }
    }
    Summary {
        rows: times.len() as u64,
        selected,
        sum,
    }
}

/// Answers with all values of a series, from the server's memory; with nothing if there is no such series.
#[ifunc(idempotent)]
pub fn column(series: &str, db: &Database, ctx: &mut Context) {
    let values = series_values(db, series).unwrap_or_default();
    let mut answer = ctx.answer_writer();
    // An answer that is too long for this source or this server fails the call: the error names the limit.
    let _ = answer.write(ifunc::zerocopy::IntoBytes::as_bytes(values));
}

/// Writes a note under a random id, commits everything, and answers with the id.
#[ifunc]
pub fn checkpoint(text: &str, db: &mut Database) -> ([u8; 16], Changed) {
    let id = uuid::Uuid::new_v4().into_bytes();
    db_note(db, &id, text);
    (id, db_commit(db).into())
}
