//! What a run has found so far.

use std::ops::Deref;

use crate::row::Row;
use crate::status::Status;

/// The rows of a run, and who watches it.
pub(crate) struct Results {
    rows: Vec<Row>,
    status: Status,
}

impl Results {
    pub(crate) fn new(status: Status) -> Self {
        let rows = Vec::new();
        Self { rows, status }
    }

    /// Takes a row down, and shows it to who watches.
    pub(crate) fn push(&mut self, row: Row) {
        self.status.found(&row);
        self.rows.push(row);
    }

    pub(crate) fn status(&mut self) -> &mut Status {
        &mut self.status
    }

    /// Leaves the first `rows`: a figure that failed has none.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows.truncate(rows);
    }
}

impl Deref for Results {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.rows
    }
}
