//! What the target has: a database, and two functions that the code it receives may call.

use std::path::Path;

use ifunc::Opaque;
use redb::{Database, ReadableTableMetadata, TableDefinition, WriteTransaction};

/// The records. Keys and values are bytes.
pub(crate) const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// A transaction that has taken up so many bytes is ended, and the next begun.
const BATCH: usize = 64 << 20;

/// The database. Ifuncs know it by the name `store/1` and cannot look inside.
#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store {
    /// `None` once it is finished.
    open: Option<Open>,
    records: u64,
}

struct Open {
    /// `None` between two transactions: redb has one writer at a time.
    transaction: Option<WriteTransaction>,
    pending: usize,
    database: Database,
}

impl Store {
    /// Opens the database, or makes it.
    ///
    /// # Errors
    /// The file is not ours, is no database, or is open elsewhere.
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

    /// How many records there were when it was finished.
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

/// Puts a record into the store.
///
/// # Errors
/// 1: the database said no; why, stands on the target's standard error.
#[ifunc::export]
pub fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32> {
    store.insert(key, value).map_err(|e| refused("insert", &e))
}

/// Makes all records last, and lets go of the database. Answers how many records it holds.
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
