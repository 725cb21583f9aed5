//! A target that reports its address and serves until its input is closed.

use anyhow::Result;
use ifunc_bench_ifuncs::Tally;
use ifunc_rt::{Grant, Policy, Target};

use super::arrivals::{SIGNED, key};

use crate::program::Starter;

pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    // SAFETY: the benchmark sends the code of `ifunc-bench-ifuncs`; only processes of this user can reach the
    // address.
    let mut policy = unsafe { Policy::trust_every_peer() };
    if std::env::var_os(SIGNED).is_some() {
        // SAFETY: as above.
        policy = unsafe { policy.accept_key("bench", key().public(), Grant::new()) };
    }
    let builder = Target::builder().policy(policy);
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
