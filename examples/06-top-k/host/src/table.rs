//! A server's columns, and the functions on them that ifuncs may call.

use std::fs::File;
use std::io;
use std::path::Path;

use arrow_array::{Array, Int64Array};
use arrow_ipc::reader::FileReader;
use example_06_top_k_ifuncs::{Column, PAGE};
use ifunc::Opaque;

/// The columns of an Arrow file. Ifuncs refer to it by the name `table/1` and cannot access its contents.
#[derive(Debug, Opaque)]
#[opaque("table/1")]
pub struct Table {
    rows: u64,
    columns: Vec<Vec<Int64Array>>,
    /// The last page of each column, filled up with 0.
    tails: Vec<Box<[i64; PAGE]>>,
    /// Batch and first row of each full page.
    pages: Vec<(usize, usize)>,
}

impl Table {
    /// Reads an Arrow file (`.arrow`, the IPC format) with the columns of [`Column`].
    ///
    /// # Errors
    /// The file cannot be read, or holds something else; the message names it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::read(path).map_err(|why| io::Error::other(format!("cannot read `{}`: {why}", path.display())))
    }

    fn read(path: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let mut table = Self {
            rows: 0,
            columns: vec![Vec::new(); Column::ALL.len()],
            tails: vec![Box::new([0; PAGE]); Column::ALL.len()],
            pages: Vec::new(),
        };
        for (batch, columns) in FileReader::try_new(File::open(path)?, None)?.enumerate() {
            let columns = columns?;
            if !table.rows.is_multiple_of(PAGE as u64) {
                return Err(
                    format!("a record batch before the last one is no multiple of {PAGE} rows").into(),
                );
            }
            let full = columns.num_rows() / PAGE;
            table.pages.extend((0..full).map(|page| (batch, page * PAGE)));
            table.rows += columns.num_rows() as u64;
            for (at, name) in Column::ALL.into_iter().enumerate() {
                let name = format!("{name:?}").to_lowercase();
                let column = columns.column_by_name(&name);
                let column = column.and_then(|column| column.as_any().downcast_ref::<Int64Array>());
                let column = column.filter(|column| column.null_count() == 0);
                let column = column.ok_or(format!("no column `{name}` of 64-bit integers without nulls"))?;
                let rest = &column.values()[full * PAGE..];
                table.tails[at][..rest.len()].copy_from_slice(rest);
                table.columns[at].push(column.clone());
            }
        }
        Ok(table)
    }
}

/// Number of rows.
#[ifunc::export]
pub fn rows(table: &Table) -> u64 {
    table.rows
}

/// Lends a page of a column: memory that the Arrow reader filled.
#[ifunc::export]
pub fn page(table: &Table, column: u32, page: u64) -> Option<&[i64; PAGE]> {
    let (column, page) = (column as usize, page as usize);
    let batches = table.columns.get(column)?;
    match table.pages.get(page) {
        Some(&(batch, from)) => batches[batch].values()[from..].first_chunk(),
        None => (page == table.pages.len() && !table.rows.is_multiple_of(PAGE as u64))
            .then(|| &*table.tails[column]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders;

    #[test]
    fn a_file_is_lent_page_by_page() {
        let path = std::env::temp_dir().join(format!("orders-{}.arrow", std::process::id()));
        for len in [1, 1024, 100_000] {
            orders::write(&path, 7, len).unwrap();
            let table = Table::open(&path).unwrap();
            assert_eq!(rows(&table), len);
            for (number, expected) in orders::columns(7, len).iter().enumerate() {
                let pages = (0..).map_while(|at| page(&table, number as u32, at));
                let mut lent = pages.flatten().copied().collect::<Vec<i64>>();
                assert_eq!(lent.len() as u64, len.next_multiple_of(PAGE as u64));
                assert!(lent.split_off(len as usize).iter().all(|value| *value == 0));
                assert_eq!(lent, *expected);
            }
            assert!(page(&table, 5, 0).is_none());
        }
        std::fs::write(&path, "no Arrow file").unwrap();
        let error = Table::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("cannot read `"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
