//! Sources and targets of ifuncs.

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::{Fresh, counters, sum_fresh};
use ifunc_rt::{Handle, Source};

use super::Sender;
use crate::pair::Count;
use crate::program::Starter;

struct Ifuncs(Vec<(Source, Handle<sum_fresh>, Handle<counters>)>);

impl Sender for Ifuncs {
    #[inline]
    fn send(&mut self, target: usize, fresh: &Fresh) -> Result<()> {
        Ok(self.0[target].1.send(fresh)?)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.iter().try_for_each(|(source, ..)| Ok(source.flush()?))
    }

    fn received(&mut self) -> Result<Vec<Count>> {
        let count = |counters: &Handle<counters>| -> Result<Count> {
            Ok(Count {
                messages: counters.call(&0)?.wait()?,
                sum: counters.call(&1)?.wait()?,
            })
        };
        self.0.iter().map(|(_, _, counters)| count(counters)).collect()
    }
}

pub(in crate::roles) fn source(mut starter: Starter) -> Result<()> {
    let addresses = super::targets(&mut starter)?;
    let connect = |address: &String| -> Result<_> {
        let source = Source::connect(address).with_context(|| format!("connecting to {address}"))?;
        let (sum, counters) = (source.register()?, source.register()?);
        Ok((source, sum, counters))
    };
    let all: Vec<_> = addresses.iter().map(connect).collect::<Result<_>>()?;
    starter.reply(
        &all.first()
            .map_or_else(String::new, |(source, ..)| source.transport()),
    )?;
    super::send(starter, all.len(), Ifuncs(all))
}
