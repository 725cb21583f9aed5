//! An ordinary target: it serves all sources, and sleeps when idle.

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::Tally;
use ifunc_rt::{Policy, Target};

use crate::program::Starter;

/// `BENCH_ADDRESS` is the address to listen on.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    // SAFETY: only this benchmark connects, as the same user.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&address)?;
    starter.reply(&target.address())?;
    starter.wait_for_end()?;
    Ok(target.serve(&mut Tally::default())?)
}
