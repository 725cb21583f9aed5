//! The operations of a key-value server: what the client's code does with the server's records. The peers' servers call the same
//! functions, compiled in.

use core::ops::ControlFlow;

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

/// The server's records by key, in ascending order.
#[ifunc::interface]
pub trait Records {
    /// Copies a record.
    fn get(&self, key: u64) -> Option<Record>;
    /// Stores a record.
    fn put(&mut self, key: u64, record: &Record);
    /// Calls `each` with every record from `first` on, until it breaks.
    fn scan(&self, first: u64, each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>);
}

/// Answers a record.
#[ifunc]
pub fn kv_get(key: u64, records: &mut dyn Records) -> Option<Record> {
    records.get(key)
}

/// A record and its key.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: u64,
    /// The record.
    pub record: Record,
}

/// Stores a record.
#[ifunc]
pub fn kv_put(put: Put, records: &mut dyn Records) {
    records.put(put.key, &put.record);
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
    records.scan(scan.first, &mut |key, record| {
        if key >= scan.end {
            return ControlFlow::Break(());
        }
        if record.amount >= scan.least {
            found.records += 1;
            found.sum = found.sum.wrapping_add(record.amount);
        }
        ControlFlow::Continue(())
    });
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
