//! Ours: an update is an invocation of an ifunc, a read is one with an answer.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::table::{Table, read, update};
use ifunc_rt::{Call, Handle, Source, Target};

use super::{Part, Worker, initial, is_aggregated, number, serve, work};
use crate::program::Starter;

/// Largest number of reads in flight: without and with aggregation.
const WINDOW: [usize; 2] = [64, 2048];

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
    let builder = unsafe { Target::builder().accept_code() };
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
    all: Vec<(Source, Handle<update>, Handle<read>)>,
    window: usize,
    pending: VecDeque<(Call<u64>, u64)>,
}

impl Worker for Sources {
    fn address(&self) -> Result<String> {
        Ok(String::new())
    }

    fn connect(&mut self, addresses: &[String]) -> Result<()> {
        let aggregated = is_aggregated();
        self.window = WINDOW[usize::from(aggregated)];
        for address in addresses {
            let source = Source::connect(address).with_context(|| format!("connecting to {address}"))?;
            let (mut update, mut read) = (source.register()?, source.register()?);
            if aggregated {
                (update, read) = (update.aggregated(), read.aggregated());
            }
            self.all.push((source, update, read));
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        let first = self.all.first();
        first.map_or_else(String::new, |(source, ..)| source.transport())
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        Ok(self.all[part].1.send(&at)?)
    }

    #[inline]
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()> {
        if self.pending.len() >= self.window {
            self.complete_oldest()?;
        }
        self.pending.push_back((self.all[part].2.call(&at)?, expected));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            self.complete_oldest()?;
        }
        for (source, ..) in &self.all {
            source.push()?;
        }
        for (source, ..) in &self.all {
            source.flush()?;
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
}
