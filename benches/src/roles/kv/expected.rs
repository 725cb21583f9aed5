//! What a client asks for, and what it must be answered.

use ifunc_bench_ifuncs::kv::{Add, Found, Item, Scan};

use super::operation::{Answer, Operation, filled, first_amount};
use crate::kv::{Kind, RECORDS, SCANNED};

/// What a record holds.
#[derive(Clone, Copy, Debug)]
struct Known {
    amount: u64,
    /// Of the other words.
    seed: u64,
}

/// A client, which alone changes the records of its keys.
pub(super) struct Client {
    /// The first of its keys.
    first: u64,
    known: Vec<Known>,
    random: u64,
    expected: Answer,
}

/// Nothing grows beyond this.
const MOST: u64 = 1 << 40;

impl Client {
    pub(super) fn new(client: usize, clients: usize) -> Self {
        let share = RECORDS / clients as u64;
        let first = client as u64 * share;
        let known = (first..first + share).map(|key| Known {
            amount: first_amount(key),
            seed: key,
        });
        Self {
            first,
            known: known.collect(),
            random: client as u64,
            expected: Answer::Stored,
        }
    }

    /// The next operation, on random keys.
    #[inline]
    pub(super) fn next(&mut self, kind: Kind) -> Operation {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut random = self.random;
        random = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random = (random ^ random >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        random ^= random >> 31;
        let keys = self.known.len() as u64 - if kind == Kind::Scan { SCANNED } else { 0 };
        let at = random % keys;
        let (key, known) = (self.first + at, &mut self.known[at as usize]);
        let (operation, expected) = match kind {
            Kind::Get => {
                let record = filled(known.amount, known.seed);
                (Operation::Get(key), Answer::Record(Some(record)))
            }
            Kind::Put => {
                (known.amount, known.seed) = (random >> 54, random);
                let record = filled(known.amount, known.seed);
                (Operation::Put(Item { key, record }), Answer::Stored)
            }
            Kind::Scan => {
                let scan = Scan {
                    first: key,
                    end: key + SCANNED,
                    least: 500,
                };
                (
                    Operation::Scan(scan),
                    Answer::Found(self.found(at as usize, scan.least)),
                )
            }
            Kind::Add => {
                let add = Add {
                    key,
                    more: random >> 60,
                    most: MOST,
                };
                known.amount = (known.amount + add.more).min(add.most);
                (Operation::Add(add), Answer::Amount(Some(known.amount)))
            }
        };
        self.expected = expected;
        operation
    }

    fn found(&self, at: usize, least: u64) -> Found {
        let looked_at = &self.known[at..at + SCANNED as usize];
        looked_at
            .iter()
            .filter(|known| known.amount >= least)
            .fold(Found::default(), |found, known| Found {
                records: found.records + 1,
                sum: found.sum + known.amount,
            })
    }

    /// Whether this is the answer to its last operation.
    pub(super) fn expects(&self, answer: &Answer) -> bool {
        *answer == self.expected
    }
}
