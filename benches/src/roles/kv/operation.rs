//! Operations and answers, the records, and what servers with compiled-in operations do.

use anyhow::{Context, Result, bail};
use ifunc_bench_ifuncs::kv::{Add, Found, Item, Record, Scan, kv_add, kv_get, kv_put, kv_scan};

use super::pages::Map;
use crate::kv::Kind;

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Get(u64),
    Put(Item),
    Scan(Scan),
    Add(Add),
}

/// What it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Record(Option<Record>),
    Stored,
    Found(Found),
    Amount(Option<u64>),
}

/// The words of a record.
pub(super) const RECORD: usize = 8;

impl Operation {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Get(_) => Kind::Get,
            Self::Put(_) => Kind::Put,
            Self::Scan(_) => Kind::Scan,
            Self::Add(_) => Kind::Add,
        }
    }

    /// What the peers' clients send.
    #[inline]
    pub(super) fn write(&self, mut word: impl FnMut(u64)) {
        match *self {
            Self::Get(key) => word(key),
            Self::Put(Item { key, record }) => {
                word(key);
                words(&record).into_iter().for_each(word);
            }
            Self::Scan(Scan { first, end, least }) => [first, end, least].into_iter().for_each(word),
            Self::Add(Add { key, more, most }) => [key, more, most].into_iter().for_each(word),
        }
    }

    /// Reads what [`write`](Self::write) has written.
    #[inline]
    pub(super) fn read(kind: Kind, words: &[u64]) -> Result<Self> {
        match (kind, words) {
            (Kind::Get, &[key]) => Ok(Self::Get(key)),
            (Kind::Put, [key, rest @ ..]) => {
                let (key, record) = (*key, record(rest).context("a record of another length")?);
                Ok(Self::Put(Item { key, record }))
            }
            (Kind::Scan, &[first, end, least]) => Ok(Self::Scan(Scan { first, end, least })),
            (Kind::Add, &[key, more, most]) => Ok(Self::Add(Add { key, more, most })),
            _ => bail!("{} words are no operation {kind:?}", words.len()),
        }
    }

    /// Does it.
    #[inline]
    pub(super) fn run(&self, records: &mut Map) -> Answer {
        match *self {
            Self::Get(key) => Answer::Record(kv_get(key, records)),
            Self::Put(item) => {
                kv_put(item, records);
                Answer::Stored
            }
            Self::Scan(scan) => Answer::Found(kv_scan(scan, records)),
            Self::Add(add) => Answer::Amount(kv_add(add, records)),
        }
    }
}

impl Answer {
    /// What the peers' servers answer.
    #[inline]
    pub(super) fn write(&self, mut word: impl FnMut(u64)) {
        match self {
            Self::Record(Some(record)) => words(record).into_iter().for_each(word),
            Self::Found(Found { records, sum }) => [*records, *sum].into_iter().for_each(word),
            Self::Amount(Some(amount)) => word(*amount),
            Self::Record(None) | Self::Amount(None) | Self::Stored => {}
        }
    }

    /// Reads what [`write`](Self::write) has written.
    #[inline]
    pub(super) fn read(kind: Kind, words: &[u64]) -> Result<Self> {
        match (kind, words) {
            (Kind::Get, []) => Ok(Self::Record(None)),
            (Kind::Get, words) => {
                let record = record(words).context("a record of another length")?;
                Ok(Self::Record(Some(record)))
            }
            (Kind::Put, []) => Ok(Self::Stored),
            (Kind::Scan, &[records, sum]) => Ok(Self::Found(Found { records, sum })),
            (Kind::Add, words) if words.len() < 2 => Ok(Self::Amount(words.first().copied())),
            _ => bail!("{} words are no answer to {kind:?}", words.len()),
        }
    }
}

pub(super) fn words(record: &Record) -> [u64; RECORD] {
    let [a, b, c, d, e, f, g] = record.rest;
    [record.amount, a, b, c, d, e, f, g]
}

pub(super) fn record(words: &[u64]) -> Option<Record> {
    let &[amount, ref rest @ ..] = words else {
        return None;
    };
    let rest = *rest.as_array()?;
    Some(Record { amount, rest })
}

/// A record whose words but the first follow from a number.
pub(super) fn filled(amount: u64, seed: u64) -> Record {
    let rest = std::array::from_fn(|at| (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Record { amount, rest }
}

/// The amount of a record at first.
pub(super) fn first_amount(key: u64) -> u64 {
    key.wrapping_mul(2_654_435_761) % 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::RECORDS;

    #[test]
    fn operations_and_answers_are_read_as_written() {
        let record = filled(7, 3);
        let operations = [
            Operation::Get(5),
            Operation::Put(Item { key: 5, record }),
            Operation::Scan(Scan {
                first: 0,
                end: 100,
                least: 500,
            }),
            Operation::Add(Add {
                key: 5,
                more: 10,
                most: 12,
            }),
            Operation::Get(RECORDS),
        ];
        let mut map = Map::new();
        let mut answers = Vec::new();
        for operation in operations {
            let mut words = Vec::new();
            operation.write(|word| words.push(word));
            let read = Operation::read(operation.kind(), &words).unwrap();
            assert_eq!(format!("{read:?}"), format!("{operation:?}"));
            let answer = read.run(&mut map);
            words.clear();
            answer.write(|word| words.push(word));
            assert_eq!(Answer::read(operation.kind(), &words).unwrap(), answer);
            answers.push(answer);
        }
        let amounts: Vec<u64> = (0..100)
            .map(|key| if key == 5 { 7 } else { first_amount(key) })
            .filter(|amount| *amount >= 500)
            .collect();
        let found = Found {
            records: amounts.len() as u64,
            sum: amounts.iter().sum(),
        };
        assert_eq!(
            answers,
            [
                Answer::Record(Some(filled(first_amount(5), 5))),
                Answer::Stored,
                Answer::Found(found),
                Answer::Amount(Some(12)),
                Answer::Record(None),
            ]
        );
    }
}
