//! The first example: a target that owns a counter, and a source that sends it code to run on that counter.
//!
//! `cargo ifunc run 01-hello` starts both.

use std::error::Error;

use example_01_hello_ifuncs::{add, report};
use ifunc_rt::{Policy, Source, Target};

/// A function of the target that ifuncs may call.
#[ifunc::export]
pub fn announce(what: &str, value: u64) {
    println!("{what} is {value}");
}

/// Owns a counter and runs ifuncs on it until the process is stopped.
///
/// # Errors
/// The target cannot listen on the address.
pub fn target(addr: &str) -> Result<(), Box<dyn Error>> {
    let mut counter = 0_u64;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address. This process holds nothing but a counter.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut counter)?;
    Ok(())
}

/// Computes (3 + 4) × 6 on the target's counter: the sum in Rust, the product in C, over one connection.
///
/// # Errors
/// The source cannot reach the target, or the target refuses the code or fails to run it.
pub fn source(addr: &str) -> Result<(), Box<dyn Error>> {
    let source = Source::connect(addr)?;
    // A typed handle: payload, target and answer have the types of the Rust function. The source sends the
    // code now, once per connection.
    let add = source.register::<add>()?;
    // A handle by name: it takes bytes, because C functions state no types.
    // SAFETY: opens the library `multiply.so`, which `cargo ifunc` built from this example's C file.
    let multiply = unsafe { source.load("multiply")? };

    for delta in [3, 4] {
        println!("add({delta}) answers {}", add.call(&delta)?.wait()?);
    }
    multiply.send(&6_u64.to_ne_bytes())?;
    println!("multiply(6) is on its way");

    // The target runs messages in order. `wait` returns when it has run this one.
    source
        .register::<report>()?
        .call("the target's counter")?
        .wait()?;
    Ok(())
}
