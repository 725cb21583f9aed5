//! The two processes: a target that owns a counter, and a source that sends code to change it.

use std::error::Error;

use ifunc_rt::{Policy, Source, Target};

/// Serves until the process is stopped.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = 0_u64;
    // SAFETY: a source that connects to `addr` runs code with this process's authority: over shared memory programs of
    // the same user, over UCX all that reach the address. The target checks that arriving code expects the type of its counter.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut counter)?;
    Ok(())
}

/// Calls `add` three times; its code travels once.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let source = Source::connect(addr)?;
    let add = source.register::<{{ifuncs_crate}}::add>()?;
    for delta in [1, 20, 300] {
        println!("add({delta}): the counter is {}", add.call(&delta)?.wait()?);
    }
    Ok(())
}
