//! A target that reports its address and serves until its input is closed.

use anyhow::Result;
use ifunc_bench_ifuncs::Tally;
use ifunc_rt::{Policy, Target};

use crate::program::Starter;

pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    // SAFETY: the benchmark sends the code of `ifunc-bench-ifuncs`; only processes of this user can reach the
    // address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&format!("shm:ifunc-bench-code-{}", std::process::id()))?;
    starter.reply(&target.address())?;
    let stop = target.stop_handle();
    // The serving thread inherits this role's processor.
    std::thread::spawn(move || {
        while let Ok(Some(())) = starter.next() {}
        stop.stop();
    });
    target.serve(&mut Tally::default())?;
    Ok(())
}
