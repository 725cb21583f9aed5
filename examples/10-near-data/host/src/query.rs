//! The question, in both ways.

use std::collections::VecDeque;

use example_10_near_data_ifuncs::{Group, Lines, Table, aggregate, fetch_part, length};
use ifunc_rt::{Call, Source};

use crate::{FILE, Failure};

/// Bytes of the file that one call reads.
const PART: u64 = 16 << 20;
/// Bytes that one call fetches.
const FETCHED: u64 = 4 << 20;
/// Calls under way.
const CALLS: usize = 4;

/// The length of the file.
pub(crate) fn len(source: &Source) -> Result<u64, Failure> {
    let len = source.register::<length>()?.call(FILE)?.wait()?;
    len.ok_or_else(|| format!("the node has no file `{FILE}`").into())
}

/// The ranges of a file.
fn parts(len: u64, part: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len)
        .step_by(part as usize)
        .map(move |from| (from, len.min(from + part)))
}

/// Sends the parser: the node parses each part of the file, and answers with its groups.
pub(crate) fn by_ifuncs(source: &Source, len: u64) -> Result<Vec<Group>, Failure> {
    let aggregate = source.register::<aggregate>()?;
    let mut table = Table::default();
    let mut calls = VecDeque::new();
    let mut take = |call: Call<Option<Vec<Group>>>| -> Result<(), Failure> {
        let groups = call.wait()?.ok_or("the node cannot read the file")?;
        groups.iter().for_each(|group| table.merge(group));
        Ok(())
    };
    for (from, to) in parts(len, PART) {
        if calls.len() == CALLS {
            calls.pop_front().map_or(Ok(()), &mut take)?;
        }
        calls.push_back(aggregate.call(&(FILE, from, to))?);
    }
    calls.into_iter().try_for_each(take)?;
    Ok(table.into_groups())
}

/// Fetches the file, and parses it here.
pub(crate) fn by_fetching(source: &Source, len: u64) -> Result<Vec<Group>, Failure> {
    let fetch = source.register::<fetch_part>()?;
    let mut table = Table::default();
    let mut lines = Lines::from_offset(0, len);
    let mut calls = VecDeque::new();
    let mut take = |call: Call<_>| -> Result<(), Failure> {
        let bytes: Vec<u8> = call.undecoded().wait()?;
        let _ = lines.add(&bytes, &mut |line| table.add(line));
        Ok(())
    };
    for (from, to) in parts(len, FETCHED) {
        if calls.len() == CALLS {
            calls.pop_front().map_or(Ok(()), &mut take)?;
        }
        calls.push_back(fetch.call(&(FILE, from, to - from))?);
    }
    calls.into_iter().try_for_each(&mut take)?;
    lines.end(&mut |line| table.add(line));
    Ok(table.into_groups())
}
