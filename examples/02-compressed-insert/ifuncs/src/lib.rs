//! The ifuncs: a record that the source compresses, and the function that decompresses it on the target,
//! which has a store but no decompressor.

#![no_std]

extern crate alloc;

use alloc::vec;

use ifunc::prelude::*;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// Longest value of a record in bytes. The source divides longer files into pieces.
pub const MAX_VALUE: usize = 1 << 20;

/// The target's store, whose contents only the target can access.
#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Inserts a record into the store.
    safe fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32>;
    /// Commits all records and closes the database. Returns the number of records.
    safe fn finish(store: &mut Store) -> Result<u64, i32>;
}

/// A record as the source passes it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// At most [`MAX_VALUE`] bytes.
    pub value: &'a [u8],
}

/// A record as the target receives it: the key, and the value as an LZ4 block.
///
/// The payload is `key length: u32, value length: u32, key, block`, with little-endian numbers.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    key: &'a [u8],
    len: usize,
    block: &'a [u8],
}

const HEADER: usize = 8;

impl<'a> Payload<'a> for Record<'a> {
    type Source = Entry<'a>;
    const TEXT: Text = Text::new().str("lz4 record/1");

    fn bound(entry: &Entry<'a>) -> usize {
        HEADER + entry.key.len() + get_maximum_output_size(entry.value.len())
    }

    /// Runs on the source: compresses directly into the frame.
    fn encode(entry: &Entry<'a>, out: &mut [u8]) -> Result<usize, EncodeError> {
        let Entry { key, value } = entry;
        let key_len = u32::try_from(key.len()).map_err(|_| EncodeError::Refused)?;
        if value.len() > MAX_VALUE {
            return Err(EncodeError::Refused);
        }
        let (header, rest) = out.split_at_mut_checked(HEADER).ok_or(EncodeError::TooLarge)?;
        let (key_out, block) = rest
            .split_at_mut_checked(key.len())
            .ok_or(EncodeError::TooLarge)?;
        header[..4].copy_from_slice(&key_len.to_le_bytes());
        header[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        key_out.copy_from_slice(key);
        let block_len = compress_into(value, block).map_err(|_| EncodeError::TooLarge)?;
        Ok(HEADER + key.len() + block_len)
    }

    /// Runs on the target, on untrusted bytes of another process.
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let (key_len, rest) = number(payload)?;
        let (len, rest) = number(rest)?;
        let (key, block) = rest.split_at_checked(key_len).ok_or(DecodeError::Length)?;
        if len > MAX_VALUE {
            return Err(DecodeError::Invalid);
        }
        Ok(Self { key, len, block })
    }

    // A source that calls by name, such as one in C, passes `key length: u32, key, value`.
    fn bound_from_args(args: &'a [u8]) -> usize {
        entry(args).map_or(0, |entry| Self::bound(&entry))
    }

    fn encode_from_args(args: &'a [u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        Self::encode(&entry(args).map_err(|_| EncodeError::Refused)?, out)
    }
}

fn number(bytes: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(DecodeError::Length)?;
    Ok((u32::from_le_bytes(*number) as usize, rest))
}

fn entry(args: &[u8]) -> Result<Entry<'_>, DecodeError> {
    let (key_len, rest) = number(args)?;
    let (key, value) = rest.split_at_checked(key_len).ok_or(DecodeError::Length)?;
    Ok(Entry { key, value })
}

/// Decompresses a record and inserts it into the store.
#[ifunc(codec = custom)]
pub fn insert_compressed(record: Record<'_>, store: &mut Store) {
    // The target's allocator provides the memory.
    let mut value = vec![0; record.len];
    // A panic ends this invocation, not the target; the source gets an error.
    let len = decompress_into(record.block, &mut value);
    assert!(
        len.is_ok_and(|len| len == record.len),
        "the record does not decompress"
    );
    assert!(
        insert(store, record.key, &value).is_ok(),
        "the store refused the record"
    );
}

/// Ends the loading, after `sent` records. Returns the number of records in the store.
#[ifunc]
pub fn finish_loading(sent: u64, store: &mut Store) -> u64 {
    let Ok(records) = finish(store) else {
        panic!("the store could not be closed")
    };
    assert!(records >= sent, "the store holds fewer records than were sent");
    records
}
