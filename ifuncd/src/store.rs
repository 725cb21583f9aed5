//! The capability `store`: keys and values in a file of redb's.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ifuncd_interfaces::{NodeError, Store};
use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use crate::capability::Capability;
use crate::node::{Caller, Node};

/// Longest key.
const MAX_KEY: usize = 1024;
/// The bytes of keys and values, by namespace.
const USED: TableDefinition<'_, &str, u64> = TableDefinition::new("used");

/// The file.
#[derive(Debug)]
pub struct Database {
    file: redb::Database,
    /// Whether a change is on the disk when it returns. Otherwise it is after the next [`flush`](Self::flush).
    is_immediate: bool,
    has_changes: AtomicBool,
}

/// Why a change was not made.
enum Change {
    Error(redb::Error),
    Exceeds,
}

impl<E: Into<redb::Error>> From<E> for Change {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// The table of a namespace.
fn table_of(namespace: &str) -> String {
    format!("data/{namespace}")
}

fn definition(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

/// What a key and its value count.
fn size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

impl Database {
    /// Opens the file, or makes one.
    ///
    /// # Errors
    /// It is no database, another process has it open, or the system refuses.
    pub fn open(path: &Path, is_immediate: bool, cache_bytes: usize) -> Result<Self, redb::Error> {
        let file = redb::Builder::new().set_cache_size(cache_bytes).create(path)?;
        let write = file.begin_write()?;
        write.open_table(USED)?;
        write.commit()?;
        Ok(Self {
            file,
            is_immediate,
            has_changes: AtomicBool::new(false),
        })
    }

    fn begin(&self) -> Result<redb::WriteTransaction, redb::Error> {
        let mut write = self.file.begin_write()?;
        if !self.is_immediate {
            write.set_durability(Durability::None)?;
            self.has_changes.store(true, Ordering::Release);
        }
        Ok(write)
    }

    /// Writes changes to the disk that are not there yet.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&self) -> Result<(), redb::Error> {
        if self.has_changes.swap(false, Ordering::AcqRel) {
            let commit = || -> Result<(), redb::Error> { Ok(self.file.begin_write()?.commit()?) };
            // The next flush tries again.
            return commit().inspect_err(|_| self.has_changes.store(true, Ordering::Release));
        }
        Ok(())
    }

    fn put(&self, namespace: &str, key: &[u8], value: &[u8], quota: u64) -> Result<(), Change> {
        let write = self.begin()?;
        {
            let name = table_of(namespace);
            let mut table = write.open_table(definition(&name))?;
            let mut used = write.open_table(USED)?;
            let now = used.get(namespace)?.map_or(0, |bytes| bytes.value());
            let before = table.insert(key, value)?.map_or(0, |old| size(key, old.value()));
            let then = now.saturating_sub(before).saturating_add(size(key, value));
            // What is above a lower quota may shrink.
            if then > quota && then > now {
                return Err(Change::Exceeds);
            }
            used.insert(namespace, then)?;
        }
        Ok(write.commit()?)
    }

    fn delete(&self, namespace: &str, key: &[u8]) -> Result<bool, redb::Error> {
        let write = self.begin()?;
        let removed = {
            let name = table_of(namespace);
            let mut table = write.open_table(definition(&name))?;
            let mut used = write.open_table(USED)?;
            let removed = table.remove(key)?.map(|old| size(key, old.value()));
            if let Some(bytes) = removed {
                let now = used.get(namespace)?.map_or(0, |bytes| bytes.value());
                used.insert(namespace, now.saturating_sub(bytes))?;
            }
            removed
        };
        write.commit()?;
        Ok(removed.is_some())
    }

    /// Calls with the table of a namespace, if there is one.
    fn read<R>(
        &self,
        namespace: &str,
        call: impl FnOnce(&redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<R, redb::Error>,
    ) -> Result<Option<R>, redb::Error> {
        let read = self.file.begin_read()?;
        let name = table_of(namespace);
        match read.open_table(definition(&name)) {
            Ok(table) => call(&table).map(Some),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes of keys and values of a namespace.
    ///
    /// # Errors
    /// The system's.
    pub fn used(&self, namespace: &str) -> Result<u64, redb::Error> {
        let used = self.file.begin_read()?.open_table(USED)?;
        Ok(used.get(namespace)?.map_or(0, |bytes| bytes.value()))
    }
}

impl Node {
    fn database(&self) -> Result<(Caller, &Database), NodeError> {
        let caller = self.caller(Capability::Store)?;
        let store = self.data().store.as_ref().ok_or(NodeError::Denied)?;
        Ok((caller, store))
    }
}

fn failed(error: redb::Error) -> NodeError {
    tracing::error!(%error, "the store failed");
    NodeError::Storage
}

/// Whether this is a key.
fn checked(key: &[u8]) -> Result<(), NodeError> {
    match key.len() {
        1..=MAX_KEY => Ok(()),
        _ => Err(NodeError::Name),
    }
}

#[ifunc::export]
impl Store for Node {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), NodeError> {
        let (caller, store) = self.database()?;
        checked(key)?;
        let settings = &caller.settings;
        caller.moved(value.len());
        match store.put(&settings.namespace, key, value, settings.store_bytes) {
            Ok(()) => Ok(()),
            Err(Change::Error(error)) => Err(failed(error)),
            Err(Change::Exceeds) => Err(caller.refuse(NodeError::Quota, "store-bytes")),
        }
    }

    fn get(&self, key: &[u8], value: &mut [u8]) -> Result<usize, NodeError> {
        let (caller, store) = self.database()?;
        checked(key)?;
        let found = store.read(&caller.settings.namespace, |table| {
            Ok(table.get(key)?.map(|found| {
                let found = found.value();
                let len = found.len().min(value.len());
                value[..len].copy_from_slice(&found[..len]);
                caller.moved(len);
                found.len()
            }))
        });
        found.map_err(failed)?.flatten().ok_or(NodeError::NotFound)
    }

    fn delete(&self, key: &[u8]) -> Result<(), NodeError> {
        let (caller, store) = self.database()?;
        checked(key)?;
        let had_value = store.delete(&caller.settings.namespace, key).map_err(failed)?;
        had_value.then_some(()).ok_or(NodeError::NotFound)
    }

    fn scan(
        &self,
        prefix: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<u64, NodeError> {
        let (caller, store) = self.database()?;
        let scanned = store.read(&caller.settings.namespace, |table| {
            let mut count = 0;
            for found in table.range(prefix..)? {
                let (key, value) = found?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                count += 1;
                caller.moved(value.value().len());
                if each(key.value(), value.value()).is_break() {
                    break;
                }
            }
            Ok(count)
        });
        Ok(scanned.map_err(failed)?.unwrap_or(0))
    }

    fn stored_bytes(&self) -> Result<u64, NodeError> {
        let (caller, store) = self.database()?;
        store.used(&caller.settings.namespace).map_err(failed)
    }
}
