//! The operations of a key-value server: what the client's code does with the server's records. The peers' servers call the same
//! functions, compiled in.

use ifunc::prelude::*;

/// A value of the server.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What a scan compares, and what [`kv_add()`] changes.
    pub amount: u64,
    /// Everything else.
    pub rest: [u64; 7],
}

/// A record and its key.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: u64,
    /// The record.
    pub record: Record,
}

/// The server's records by key, in ascending order.
#[ifunc::interface]
pub trait Records {
    /// Copies a record.
    fn get(&self, key: u64) -> Option<Record>;
    /// Stores a record.
    fn put(&mut self, key: u64, record: &Record);
    /// Lends the items whose keys are not less than `first`, up to the end of a page of the server's. Empty: there are none.
    fn page(&self, first: u64) -> &[Item];
}

/// Answers a record.
#[ifunc]
pub fn kv_get(key: u64, records: &mut dyn Records) -> Option<Record> {
    records.get(key)
}

/// Stores a record.
#[ifunc]
pub fn kv_put(item: Item, records: &mut dyn Records) {
    records.put(item.key, &item.record);
}

/// Which records a scan looks at, and which of them it counts.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first key.
    pub first: u64,
    /// The key after the last.
    pub end: u64,
    /// The least amount that counts.
    pub least: u64,
}

/// What a scan has found.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Records that count.
    pub records: u64,
    /// The sum of their amounts.
    pub sum: u64,
}

/// Counts the records of a range whose amount is large enough.
#[ifunc]
pub fn kv_scan(scan: Scan, records: &mut dyn Records) -> Found {
    let mut found = Found::default();
    let mut first = scan.first;
    while first < scan.end {
        let page = records.page(first);
        for item in page.iter().take_while(|item| item.key < scan.end) {
            if item.record.amount >= scan.least {
                found.records += 1;
                found.sum = found.sum.wrapping_add(item.record.amount);
            }
        }
        let Some(next) = page.last().and_then(|last| last.key.checked_add(1)) else {
            break;
        };
        first = next;
    }
    found
}

/// A change of an amount.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add {
    /// The key.
    pub key: u64,
    /// What is added.
    pub more: u64,
    /// The result is at most this.
    pub most: u64,
}

/// Adds to an amount, up to a limit. Answers the new one, if there is such a record.
#[ifunc]
pub fn kv_add(add: Add, records: &mut dyn Records) -> Option<u64> {
    let mut record = records.get(add.key)?;
    record.amount = record.amount.saturating_add(add.more).min(add.most);
    records.put(add.key, &record);
    Some(record.amount)
}
