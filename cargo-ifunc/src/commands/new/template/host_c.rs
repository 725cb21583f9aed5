//! The two processes: a target that owns a counter, and a source that sends code to change it.

use std::error::Error;

use ifunc_rt::{Policy, Source, Target};

// `load` finds images by name; this import only makes the images of `{{ifuncs}}` part of this package.
use {{ifuncs_crate}} as _;

/// A function of the target that the code it receives may call.
#[ifunc::export]
pub fn announce(counter: u64) {
    println!("the counter is {counter}");
}

/// Serves until the process is stopped.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = 0_u64;
    // SAFETY: a source that connects to `addr` runs code with this process's authority: over shared memory programs of
    // the same user, over UCX all that reach the address. C ifuncs do not declare the type of the target's data, so both sides must agree on it.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut counter)?;
    Ok(())
}

/// Calls `c_add` three times; its code travels once.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let source = Source::connect(addr)?;
    // SAFETY: opens `c_add.so`, which this workspace built, and calls its `c_add_payload_init`.
    let c_add = unsafe { source.load("c_add")? };
    for delta in [1_u64, 20, 300] {
        println!("c_add({delta})");
        c_add.call(&delta.to_ne_bytes())?.wait()?;
    }
    Ok(())
}
