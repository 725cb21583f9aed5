//! The results of a run so far.

use std::ops::Deref;

use crate::row::Row;
use crate::status::Status;

/// The rows of a run, and its status display.
pub(crate) struct Results {
    rows: Vec<Row>,
    status: Status,
}

impl Results {
    pub(crate) fn new(status: Status) -> Self {
        let rows = Vec::new();
        Self { rows, status }
    }

    /// Adds a row and shows it.
    pub(crate) fn push(&mut self, row: Row) {
        self.status.found(&row);
        self.rows.push(row);
    }

    pub(crate) fn status(&mut self) -> &mut Status {
        &mut self.status
    }

    /// Keeps the first `rows`: a failed figure has none.
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
