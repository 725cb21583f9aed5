//! Calls of an ifunc.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{answer, question};
use ifunc_rt::{Call, Handle, Source};

use super::{Caller, call};
use crate::program::Starter;

struct Ifunc(Handle<question>);

impl Caller for Ifunc {
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()> {
        let mut open: VecDeque<(u64, Call<u64>)> = VecDeque::with_capacity(in_flight);
        let close = |(number, call): (u64, Call<u64>)| -> Result<()> {
            ensure!(call.wait()? == answer(number), "a wrong answer");
            Ok(())
        };
        for number in numbers {
            if open.len() == in_flight
                && let Some(oldest) = open.pop_front()
            {
                close(oldest)?;
            }
            open.push_back((number, self.0.call(&number)?));
        }
        open.into_iter().try_for_each(close)
    }
}

/// `BENCH_ADDRESS` is the target's address.
pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    let source = Source::connect(&address)?;
    let mut starter = starter;
    starter.reply(&source.transport())?;
    call(starter, Ifunc(source.register()?))
}
