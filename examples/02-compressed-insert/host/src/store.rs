//! The target's database, and two functions on it that ifuncs may call.

use std::path::Path;

use ifunc::Opaque;
use redb::{Database, ReadableTableMetadata, TableDefinition, WriteTransaction};

/// The records. Keys and values are bytes.
pub(crate) const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// Commits a transaction after this many bytes.
const BATCH: usize = 64 << 20;

/// The database. Ifuncs refer to it by the name `store/1` and cannot access its contents.
#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store {
    /// `None` after [`finish`].
    open: Option<Open>,
    records: u64,
}

struct Open {
    /// `None` between two transactions; redb has one writer at a time.
    transaction: Option<WriteTransaction>,
    pending: usize,
    database: Database,
}

impl Store {
    /// Opens the database, or creates it.
    ///
    /// # Errors
    /// The file is not accessible, not a database, or open elsewhere.
    pub fn create(path: &Path) -> Result<Self, redb::Error> {
        let database = Database::create(path)?;
        Ok(Self {
            open: Some(Open {
                transaction: None,
                pending: 0,
                database,
            }),
            records: 0,
        })
    }

    /// Whether [`finish`] was called.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.open.is_none()
    }

    /// Number of records at the time of [`finish`].
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), redb::Error> {
        let open = self.open.as_mut().ok_or(redb::Error::DatabaseClosed)?;
        open.writer()?.open_table(RECORDS)?.insert(key, value)?;
        open.pending += key.len() + value.len();
        if open.pending > BATCH {
            open.commit()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<u64, redb::Error> {
        let mut open = self.open.take().ok_or(redb::Error::DatabaseClosed)?;
        self.records = open.writer()?.open_table(RECORDS)?.len()?;
        open.commit()?;
        Ok(self.records)
    }
}

impl Open {
    fn writer(&mut self) -> Result<&mut WriteTransaction, redb::Error> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction),
            none => Ok(none.insert(self.database.begin_write()?)),
        }
    }

    fn commit(&mut self) -> Result<(), redb::Error> {
        self.pending = 0;
        if let Some(transaction) = self.transaction.take() {
            transaction.commit()?;
        }
        Ok(())
    }
}

/// Inserts a record into the store.
///
/// # Errors
/// 1: the database reported an error; the target prints it on standard error.
#[ifunc::export]
pub fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32> {
    store.insert(key, value).map_err(|e| refused("insert", &e))
}

/// Commits all records and closes the database. Returns the number of records.
///
/// # Errors
/// As [`insert`].
#[ifunc::export]
pub fn finish(store: &mut Store) -> Result<u64, i32> {
    store.finish().map_err(|e| refused("finish", &e))
}

fn refused(what: &str, why: &redb::Error) -> i32 {
    eprintln!("{what}: {why}");
    1
}
