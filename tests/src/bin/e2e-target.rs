//! A target: owns two numbers, runs what it is sent, says what its numbers are when they changed.

use std::io::Write;

use ifunc_rt::{NamedSet, Target};
use ifunc_tests::State;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let address = std::env::var("IFUNC_ADDR")?;
    let mut state = State::default();
    // SAFETY: the tests of this user, who may do here whatever they like.
    let builder = unsafe { Target::builder().accept_code() };
    let builder = match std::env::var_os("E2E_LIBC") {
        Some(_) => builder.allow_set(NamedSet::Libc),
        None => builder,
    };
    let builder = match std::env::var("E2E_LIBRARY") {
        // SAFETY: a library of the system, chosen by a test.
        Ok(soname) => unsafe { builder.allow_library(soname) },
        Err(_) => builder,
    };
    let mut target = builder.listen(&address)?;
    println!("ifunc: ready {}", target.address());
    let mut said = 0;
    target.serve_until(&mut state, |state| {
        if state.changes != said {
            said = state.changes;
            println!("counter: {}", state.counter);
            // A test that reads this through a pipe must not wait for the buffer.
            let _ = std::io::stdout().flush();
        }
        false
    })?;
    Ok(())
}
