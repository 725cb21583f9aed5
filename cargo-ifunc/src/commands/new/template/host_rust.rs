//! The two sides: a target that owns a counter, and a source that sends code to work on it.

use std::error::Error;

use ifunc_rt::{Source, Target};

/// Serves until it is told to stop.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = 0_u64;
    // SAFETY: whoever reaches `addr` runs code with this process's authority: by default, only programs of the same
    // user. The data they work on is the counter, and its type is part of what is compared.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut counter)?;
    Ok(())
}

/// Sends `add`, three times; its code travels once.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let source = Source::connect(addr)?;
    let add = source.register::<{{ifuncs_crate}}::add>()?;
    for delta in [1, 20, 300] {
        println!("add({delta}): the counter is {}", add.call(&delta)?.wait()?);
    }
    Ok(())
}
