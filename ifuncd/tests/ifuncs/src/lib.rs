//! The ifuncs that the tests of ifuncd send. Each answers with a value, or the number of the error below zero.

#![no_std]

extern crate alloc;

use alloc::string::String;
use core::ops::ControlFlow;

use ifunc::prelude::*;
use ifuncd_interfaces::{Clock, Files, Log, Memory, Node, NodeError, Random, Store};

fn number<T: Into<u64>>(result: Result<T, NodeError>) -> i64 {
    match result {
        Ok(value) => value.into() as i64,
        Err(error) => -i64::from(error as i32),
    }
}

fn length(result: Result<usize, NodeError>) -> i64 {
    number(result.map(|len| len as u64))
}

fn done(result: Result<(), NodeError>) -> i64 {
    number(result.map(|()| 0_u64))
}

/// Stores a value.
#[ifunc]
pub fn d_put((key, value): (&[u8], &[u8]), store: &dyn Store) -> i64 {
    done(store.put(key, value))
}

/// The length of a value, and the sum of its bytes.
#[ifunc]
pub fn d_get(key: &[u8], store: &dyn Store) -> (i64, u64) {
    let mut value = [0; 256];
    let found = store.get(key, &mut value);
    let len = found.unwrap_or(0).min(value.len());
    (
        length(found),
        value[..len].iter().map(|byte| u64::from(*byte)).sum(),
    )
}

/// Removes a key.
#[ifunc]
pub fn d_delete(key: &[u8], store: &dyn Store) -> i64 {
    done(store.delete(key))
}

/// The number of keys with a prefix, the bytes of their values until the callback broke after `most`, and those of the namespace.
#[ifunc]
pub fn d_scan((prefix, most): (&[u8], u64), store: &dyn Store) -> (i64, u64, i64) {
    let (mut bytes, mut seen) = (0, 0);
    let count = store.scan(prefix, &mut |_, value| {
        bytes += value.len() as u64;
        seen += 1;
        if seen == most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    (number(count), bytes, number(store.stored_bytes()))
}

/// Reads of a file: the length, what was read, the sum of the bytes; and the sum of all pieces from an offset on.
#[ifunc]
pub fn d_read((path, offset): (&str, u64), files: &dyn Files) -> (i64, i64, u64, u64) {
    let mut bytes = [0; 64];
    let read = files.read(path, offset, &mut bytes);
    let sum = |bytes: &[u8]| -> u64 { bytes.iter().map(|byte| u64::from(*byte)).sum() };
    let first = sum(&bytes[..read.unwrap_or(0)]);
    let mut all = 0;
    let _ = files.read_each(path, offset, u64::MAX, &mut |piece| {
        all += sum(piece);
        ControlFlow::Continue(())
    });
    (number(files.file_len(path)), length(read), first, all)
}

/// The names in a folder, with `,` between them.
#[ifunc]
pub fn d_list(path: &str, files: &dyn Files) -> String {
    let mut names = String::new();
    let listed = files.list(path, &mut |name| {
        names.push_str(name);
        names.push(',');
        ControlFlow::Continue(())
    });
    match listed {
        Ok(_) => names,
        Err(error) => alloc::format!("{error}"),
    }
}

/// Writes to a file.
#[ifunc]
pub fn d_write((path, bytes): (&str, &[u8]), files: &dyn Files) -> i64 {
    done(files.write(path, 0, bytes))
}

/// Makes a region, adds to its first number, and answers with what that was.
#[ifunc]
pub fn d_count((name, len, delta): (&str, u64, u64), memory: &dyn Memory) -> (i64, i64) {
    (
        done(memory.create_region(name, len)),
        number(memory.fetch_add(name, 0, delta)),
    )
}

/// Everything else of a region: its length, what was swapped, what lies beyond its end, and whether it is gone when it is removed.
#[ifunc]
pub fn d_region(name: &str, memory: &dyn Memory) -> [i64; 6] {
    let len = number(memory.region_len(name));
    let swapped = number(memory.compare_swap(name, 0, 0, 7));
    let stored = done(memory.store(name, 8, &[1, 2, 3]));
    let mut bytes = [0; 4];
    let beyond = done(memory.load(name, u64::MAX, &mut bytes));
    let loaded = memory.load(name, 7, &mut bytes);
    let loaded = loaded.map(|()| u64::from(u32::from_le_bytes(bytes)));
    let mut count = 0_i64;
    let _ = memory.regions(&mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    let _ = memory.remove_region(name);
    let gone = number(memory.region_len(name));
    [len, swapped, stored + beyond, number(loaded), count, gone]
}

/// Uses several interfaces at once.
#[ifunc]
pub fn d_all(path: &str, node: &dyn Node) -> [i64; 6] {
    let mut bytes = [0; 32];
    let read = node.read(path, 0, &mut bytes);
    let put = node.put(b"all", &bytes[..read.unwrap_or(0)]);
    let region = node.create_region("all", 8);
    let mut random = [0; 16];
    let filled = node.fill_random(&mut random);
    let is_random = u64::from(random != [0; 16]);
    [
        length(read),
        done(put),
        done(region),
        number(node.unix_time()),
        number(filled.map(|()| is_random)),
        done(node.info("all")),
    ]
}

/// A clock that never goes back.
#[ifunc]
pub fn d_time(_: u64, clock: &dyn Clock) -> (i64, i64) {
    (number(clock.monotonic_time()), number(clock.monotonic_time()))
}

/// Random bytes.
#[ifunc]
pub fn d_random(len: u64, random: &dyn Random) -> i64 {
    let mut bytes = alloc::vec![0; len as usize];
    done(random.fill_random(&mut bytes))
}

/// A line of the log.
#[ifunc]
pub fn d_log(line: &str, log: &dyn Log) -> i64 {
    done(log.warn(line))
}

/// Calls until one is refused: how many were not, and why that one was.
#[ifunc]
pub fn d_hurry(most: u64, clock: &dyn Clock) -> (u64, i64) {
    for done in 0..most {
        if let Err(error) = clock.monotonic_time() {
            return (done, -i64::from(error as i32));
        }
    }
    (most, 0)
}

/// Spins for so many milliseconds of the node's clock.
#[ifunc]
pub fn d_spin(milliseconds: u64, clock: &dyn Clock) -> i64 {
    let Ok(began) = clock.monotonic_time() else {
        return -1;
    };
    while clock
        .monotonic_time()
        .is_ok_and(|now| now - began < milliseconds * 1_000_000)
    {
        core::hint::spin_loop();
    }
    milliseconds as i64
}

/// Uses nothing of the node.
#[ifunc]
pub fn d_sum(numbers: &[u64], _: &dyn Node) -> u64 {
    numbers.iter().sum()
}
