//! Ours: an update is an invocation of an ifunc, a read is one with an answer.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::table::{Table, read, update};
use ifunc_rt::{Answers, Call, Handle, Policy, Source, Target};

use super::{Part, Worker, initial, is_aggregated, number, serve, work};
use crate::program::Starter;

/// Largest number of reads in flight: without and with aggregation.
const WINDOW: [usize; 2] = [64, 2048];
/// Operations of a part that are collected before they are sent together, with aggregation.
pub(super) const TOGETHER: usize = 256;

/// `BENCH_ADDRESS` is the address to listen on: `shm:` (with a generated name), or `ucx://127.0.0.1:0`.
pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS must be the address to listen on")?;
    let address = match address.as_str() {
        "shm:" => format!("shm:ifunc-bench-table-{}", std::process::id()),
        address => address.to_owned(),
    };
    let words: Box<[u64]> = initial(number("BENCH_PART")?)?.collect();
    let Ok(table) = Box::<Table>::try_from(words) else {
        anyhow::bail!("the table has a wrong length")
    };
    // SAFETY: the benchmark sends the code of `ifunc-bench-ifuncs`; only processes of this user can reach the
    // address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let target = builder.listen(&address)?;
    serve(starter, Ours { target, table })
}

struct Ours {
    target: Target,
    table: Box<Table>,
}

impl Part for Ours {
    fn address(&self) -> Result<String> {
        Ok(self.target.address())
    }

    fn connect(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool> {
        Ok(self.target.poll(&mut *self.table) > 0)
    }

    fn word(&mut self, at: usize) -> u64 {
        self.table[at]
    }
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    work(starter, Sources::default())
}

#[derive(Default)]
struct Sources {
    all: Vec<To>,
    is_aggregated: bool,
    window: usize,
    /// Reads in flight, oldest first: each by itself, with the word that it must return; and together.
    pending: VecDeque<(Call<u64>, u64)>,
    pending_together: VecDeque<(Answers<u64>, Vec<u64>)>,
    /// Reads among those that are in flight together or collected.
    together: usize,
}

/// What goes to a part.
struct To {
    source: Source,
    update: Handle<update>,
    read: Handle<read>,
    /// Places that are sent together, and the words that reads of them must return.
    places: Vec<u64>,
    expected: Vec<u64>,
}

impl Worker for Sources {
    fn address(&self) -> Result<String> {
        Ok(String::new())
    }

    fn connect(&mut self, addresses: &[String]) -> Result<()> {
        let aggregated = is_aggregated();
        self.is_aggregated = aggregated;
        self.window = WINDOW[usize::from(aggregated)];
        for address in addresses {
            let source = Source::connect(address).with_context(|| format!("connecting to {address}"))?;
            let (mut update, mut read) = (source.register()?, source.register()?);
            if aggregated {
                (update, read) = (update.aggregated(), read.aggregated());
            }
            self.all.push(To {
                source,
                update,
                read,
                places: Vec::with_capacity(TOGETHER),
                expected: Vec::with_capacity(TOGETHER),
            });
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        let first = self.all.first();
        first.map_or_else(String::new, |part| part.source.transport())
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        let part = &mut self.all[part];
        if !self.is_aggregated {
            return Ok(part.update.send(&at)?);
        }
        part.places.push(at);
        if part.places.len() == TOGETHER {
            part.update.send_many(part.places.drain(..))?;
        }
        Ok(())
    }

    #[inline]
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()> {
        if !self.is_aggregated {
            if self.pending.len() >= self.window {
                self.complete_oldest()?;
            }
            self.pending.push_back((self.all[part].read.call(&at)?, expected));
            return Ok(());
        }
        self.together += 1;
        let to = &mut self.all[part];
        to.places.push(at);
        to.expected.push(expected);
        if to.places.len() == TOGETHER {
            self.read_together(part);
            while self.together > self.window - TOGETHER {
                self.complete_together()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            self.complete_oldest()?;
        }
        for part in 0..self.all.len() {
            let to = &mut self.all[part];
            if !to.expected.is_empty() {
                self.read_together(part);
            } else if !to.places.is_empty() {
                to.update.send_many(to.places.drain(..))?;
            }
        }
        while !self.pending_together.is_empty() {
            self.complete_together()?;
        }
        for part in &self.all {
            part.source.push()?;
        }
        for part in &self.all {
            part.source.flush()?;
        }
        Ok(())
    }
}

impl Sources {
    /// Waits for the oldest read.
    #[inline]
    fn complete_oldest(&mut self) -> Result<()> {
        if let Some((call, expected)) = self.pending.pop_front() {
            let word = call.wait()?;
            ensure!(word == expected, "read {word:#x} instead of {expected:#x}");
        }
        Ok(())
    }

    /// Sends the reads that are collected for a part.
    fn read_together(&mut self, part: usize) {
        let to = &mut self.all[part];
        let answers = to.read.call_many(to.places.drain(..));
        let expected = std::mem::replace(&mut to.expected, Vec::with_capacity(TOGETHER));
        self.pending_together.push_back((answers, expected));
    }

    /// Waits for the oldest reads that were sent together.
    fn complete_together(&mut self) -> Result<()> {
        if let Some((answers, expected)) = self.pending_together.pop_front() {
            self.together -= expected.len();
            for (word, expected) in answers.zip(expected) {
                let word = word?;
                ensure!(word == expected, "read {word:#x} instead of {expected:#x}");
            }
        }
        Ok(())
    }
}
