//! The server's data, and the functions that it exports.

use std::collections::BTreeMap;
use std::path::Path;

use example_11_timeseries_ifuncs::DbError;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// The bytes of times and of values.
type Columns<'a> = (&'a [u8], &'a [u8]);
/// Series and the number of a part, to its columns.
const PARTS: TableDefinition<'_, (&str, u64), Columns<'_>> = TableDefinition::new("parts");
/// Ids and texts of notes.
const NOTES: TableDefinition<'_, &[u8; 16], &str> = TableDefinition::new("notes");

/// Columns in memory, and a file of what was committed.
#[derive(ifunc::Opaque)]
#[opaque("timeseries/1")]
pub struct Database {
    series: BTreeMap<String, Series>,
    notes: Vec<([u8; 16], String)>,
    max_rows: usize,
    file: redb::Database,
}

/// The columns of a series.
#[derive(Debug, Default)]
struct Series {
    times: Vec<i64>,
    values: Vec<f64>,
    /// Rows that are in the file, and the parts in which they are.
    committed: usize,
    parts: u64,
}

impl Database {
    /// Opens a file, or makes one.
    ///
    /// # Errors
    /// The file is no database, or cannot be read.
    pub fn open(path: &Path, max_rows: usize) -> Result<Self, redb::Error> {
        let file = redb::Database::create(path)?;
        let mut series = BTreeMap::<String, Series>::new();
        let write = file.begin_write()?;
        {
            write.open_table(NOTES)?;
            let parts = write.open_table(PARTS)?;
            for part in parts.iter()? {
                let (key, columns) = part?;
                let (times, values) = columns.value();
                let series = series.entry(key.value().0.to_owned()).or_default();
                series.times.extend(numbers(times).map(i64::from_le_bytes));
                series.values.extend(numbers(values).map(f64::from_le_bytes));
                series.committed = series.times.len();
                series.parts += 1;
            }
        }
        write.commit()?;
        Ok(Self {
            series,
            notes: Vec::new(),
            max_rows,
            file,
        })
    }

    /// Rows of all series.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.series.values().map(|series| series.times.len()).sum()
    }

    /// The text of a committed note.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn note(&self, id: &[u8; 16]) -> Result<Option<String>, redb::Error> {
        let notes = self.file.begin_read()?.open_table(NOTES)?;
        Ok(notes.get(id)?.map(|text| text.value().to_owned()))
    }

    fn commit(&mut self) -> Result<u64, redb::Error> {
        let write = self.file.begin_write()?;
        {
            let mut notes = write.open_table(NOTES)?;
            for (id, text) in self.notes.drain(..) {
                notes.insert(&id, text.as_str())?;
            }
            let mut parts = write.open_table(PARTS)?;
            for (name, series) in &mut self.series {
                let new = series.committed..series.times.len();
                if new.is_empty() {
                    continue;
                }
                let times: Vec<u8> = series.times[new.clone()]
                    .iter()
                    .flat_map(|time| time.to_le_bytes())
                    .collect();
                let values: Vec<u8> = series.values[new.clone()]
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                parts.insert(
                    (name.as_str(), series.parts),
                    (times.as_slice(), values.as_slice()),
                )?;
                series.committed = new.end;
                series.parts += 1;
            }
        }
        write.commit()?;
        Ok(self.rows() as u64)
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> {
    bytes.as_chunks().0.iter().copied()
}

/// Appends rows to a series, which begins with its first row.
///
/// # Errors
/// The times do not ascend, or the server takes no more rows.
#[ifunc::export(import = example_11_timeseries_ifuncs::series_append)]
fn series_append(db: &mut Database, series: &str, times: &[i64], values: &[f64]) -> Result<u64, DbError> {
    if db.rows() + times.len() > db.max_rows {
        return Err(DbError::Full);
    }
    let last = db.series.get(series).and_then(|series| series.times.last());
    if times.len() != values.len() || !last.into_iter().chain(times).is_sorted() {
        return Err(DbError::Order);
    }
    let series = match db.series.get_mut(series) {
        Some(series) => series,
        None => db.series.entry(series.to_owned()).or_default(),
    };
    series.times.extend_from_slice(times);
    series.values.extend_from_slice(values);
    Ok(series.times.len() as u64)
}

/// Lends the times of a series.
#[ifunc::export(import = example_11_timeseries_ifuncs::series_times)]
fn series_times<'d>(db: &'d Database, series: &str) -> Option<&'d [i64]> {
    Some(&db.series.get(series)?.times)
}

/// Lends the values of a series.
#[ifunc::export(import = example_11_timeseries_ifuncs::series_values)]
fn series_values<'d>(db: &'d Database, series: &str) -> Option<&'d [f64]> {
    Some(&db.series.get(series)?.values)
}

/// Notes what was done, under an id.
#[ifunc::export(import = example_11_timeseries_ifuncs::db_note)]
fn db_note(db: &mut Database, id: &[u8; 16], text: &str) {
    db.notes.push((*id, text.to_owned()));
}

/// Writes everything that is new to the file.
///
/// # Errors
/// The file reports an error, which the server prints.
#[ifunc::export(import = example_11_timeseries_ifuncs::db_commit)]
fn db_commit(db: &mut Database) -> Result<u64, DbError> {
    db.commit().map_err(|error| {
        eprintln!("commit: {error}");
        DbError::Storage
    })
}
