//! The first example: a target that owns a counter, and a source that sends it code to run on that counter.
//!
//! `cargo ifunc run 01-hello` starts both.

use std::error::Error;

use example_01_hello_ifuncs::{add, report};
use ifunc_rt::{Source, Target};

/// What the target lets the code that it receives call.
#[ifunc::export]
pub fn announce(what: &str, value: u64) {
    println!("{what} is {value}");
}

/// Owns a counter, and runs what sources send on it until it is told to stop.
///
/// # Errors
/// The address cannot be listened on.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = 0_u64;
    // SAFETY: code that arrives has the authority of this process. Only programs of the same user can send it, and this
    // one holds nothing but a counter.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut counter)?;
    Ok(())
}

/// Computes (3 + 4) × 6 on the target's counter: the sum in Rust, the product in C, over one connection.
///
/// # Errors
/// The target cannot be reached, refused the code, or failed to run it.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let source = Source::connect(addr)?;
    // Typed: payload, target and answer are those of the Rust function. Its code is sent now, and only once.
    let add = source.register::<add>()?;
    // By name: bytes go in, as C functions have no types that we could know.
    // SAFETY: opens the library `multiply.so`, which was built from this example's C file.
    let multiply = unsafe { source.load("multiply")? };

    for delta in [3, 4] {
        println!("add({delta}) answers {}", add.call(&delta)?.wait()?);
    }
    multiply.send(&6_u64.to_ne_bytes())?;
    println!("multiply(6) is on its way");

    // What is sent is run in order. `wait` returns when the target has run it.
    source
        .register::<report>()?
        .call("the target's counter")?
        .wait()?;
    Ok(())
}
