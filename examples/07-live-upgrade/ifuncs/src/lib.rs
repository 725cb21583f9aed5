//! The ifuncs: storing and reading records. They call functions of the target that the target replaces meanwhile: how records are
//! compressed, and how they are found.

#![no_std]

extern crate alloc;

use alloc::vec;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

/// Longest value in bytes.
pub const MAX_VALUE: usize = 32 << 10;

/// The target's records.
#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Compresses `input`, and returns the length; 0 if `output` is too short.
    safe fn compress(input: &[u8], output: &mut [u8]) -> u64;
    /// Expands what `compress` wrote, and returns the length; `None` if that is something else, or longer than `output`.
    safe fn expand(input: &[u8], output: &mut [u8]) -> Option<u64>;
    /// The number of the last record with this key.
    safe fn find_record(store: &mut Store, key: &str) -> Option<u64>;
    /// Appends a record.
    safe fn append_record(store: &mut Store, key: &str, value: &[u8]);
    /// A record's value, as it was appended.
    safe fn record(store: &Store, number: u64) -> &[u8];
}

/// The payload of [`put()`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Record<'a> {
    /// The key.
    pub key: &'a str,
    /// The value, at most [`MAX_VALUE`] bytes.
    pub value: &'a [u8],
}

/// Stores a value under a key, compressed, and answers its compressed length.
#[ifunc(codec = postcard)]
pub fn put(record: Record<'_>, store: &mut Store) -> u64 {
    let mut packed = vec![0; 2 * record.value.len() + 64];
    let len = compress(record.value, &mut packed);
    assert!(
        len > 0,
        "a value of {} bytes does not compress",
        record.value.len()
    );
    append_record(store, record.key, &packed[..len as usize]);
    len
}

/// Answers the last value of a key; nothing if there is none.
#[ifunc]
pub fn get(key: &str, store: &mut Store, ctx: &mut Context) {
    let Some(number) = find_record(store, key) else {
        return;
    };
    let packed = record(store, number);
    ctx.answer_with(|space| match expand(packed, space) {
        Some(len) => len as usize,
        None => panic!("the value of `{key}` does not expand"),
    });
}
