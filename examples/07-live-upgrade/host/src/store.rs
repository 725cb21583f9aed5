//! The target's records, and the functions on them that ifuncs may call, in two versions.

use std::collections::HashMap;

use ifunc::Opaque;

/// Records in the order in which they were stored. Ifuncs refer to it by the name `store/1` and cannot access its contents.
#[derive(Debug, Default, Opaque)]
#[opaque("store/1")]
pub struct Store {
    records: Vec<(String, Vec<u8>)>,
    /// The last record of each key, of the first `indexed` records. The first version does not use it.
    index: HashMap<String, usize>,
    indexed: usize,
}

/// Finds a record by comparing keys, the last one first.
#[ifunc::export]
pub fn find_record(store: &mut Store, key: &str) -> Option<u64> {
    let found = store.records.iter().rposition(|(known, _)| known == key);
    found.map(|number| number as u64)
}

/// The second version of [`find_record`]: finds a record by an index. The first call indexes what is there.
#[ifunc::export]
pub fn find_by_index(store: &mut Store, key: &str) -> Option<u64> {
    for (number, (key, _)) in store.records.iter().enumerate().skip(store.indexed) {
        store.index.insert(key.clone(), number);
    }
    store.indexed = store.records.len();
    store.index.get(key).map(|number| *number as u64)
}

/// Appends a record.
#[ifunc::export]
pub fn append_record(store: &mut Store, key: &str, value: &[u8]) {
    store.records.push((key.to_owned(), value.to_owned()));
}

/// A record's value, as it was appended; empty if there is no such record.
#[ifunc::export]
pub fn record(store: &Store, number: u64) -> &[u8] {
    let record = usize::try_from(number)
        .ok()
        .and_then(|number| store.records.get(number));
    record.map(|(_, value)| &**value).unwrap_or_default()
}
