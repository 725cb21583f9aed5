//! A target as any is: it serves whoever connects, and sleeps when there is nothing for a while.

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::Tally;
use ifunc_rt::Target;

use crate::program::Starter;

/// `BENCH_ADDRESS` is where it listens.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    // SAFETY: what connects is this benchmark's, and of this user.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(&address)?;
    starter.reply(&target.address())?;
    starter.wait_for_end()?;
    Ok(target.serve(&mut Tally::default())?)
}
