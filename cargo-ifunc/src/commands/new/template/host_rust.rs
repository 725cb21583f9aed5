//! The two processes: a target that owns a counter, and a source that sends code to change it.

use std::error::Error;

use ifunc_rt::{Policy, Source, Target};

/// The target's data. Ifuncs know the type by its name, and use it through the functions that this crate exports.
#[derive(Debug, Default, ifunc::Opaque)]
#[opaque("{{name}}/1")]
pub struct Counter {
    pub value: u64,
    /// How often it was changed.
    pub changes: u64,
}

/// A function of the host that ifuncs may call.
#[ifunc::export]
pub fn counter_add(counter: &mut Counter, delta: u64) -> u64 {
    counter.value += delta;
    counter.changes += 1;
    counter.value
}

/// Serves until the process is stopped.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = Counter::default();
    // SAFETY: a source that connects to `addr` runs code with this process's authority: over shared memory programs of
    // the same user, over UCX all that reach the address. The target checks that arriving code expects its data and functions.
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
