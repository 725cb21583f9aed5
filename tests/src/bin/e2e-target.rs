//! A target: owns two numbers, runs what it is sent, says what its numbers are when they changed.

use std::io::Write;
use std::time::Duration;

use ifunc_rt::{Level, NamedSet, Policy, RunnerOptions, Target, TargetBuilder};
use ifunc_tests::State;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // It is its own runner program.
    ifunc_rt::run_if_started_by_target();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let address = std::env::var("IFUNC_ADDR")?;
    // One target after the other, each until something has changed.
    if let Ok(targets) = std::env::var("E2E_TARGETS") {
        for round in 0..targets.parse()? {
            let address = format!("{address}-{round}");
            serve(&address, true)?;
            println!("done: {address}");
        }
    }
    serve(&address, false)
}

/// As a test wants it.
fn builder() -> TargetBuilder {
    // SAFETY: the tests of this user, who may do here whatever they like.
    let mut policy = unsafe { Policy::trust_every_peer() };
    if let Ok(milliseconds) = std::env::var("E2E_CONTAINED") {
        let limit = milliseconds.parse().expect("E2E_CONTAINED is a number");
        policy = policy
            .level(Level::Contained)
            .max_run_time(Duration::from_millis(limit));
    }
    if let Ok(milliseconds) = std::env::var("E2E_PROCESS") {
        let limit = milliseconds.parse().expect("E2E_PROCESS is a number");
        let program = std::env::current_exe().expect("a program has a file");
        policy = policy
            .level(Level::Process)
            .runners(RunnerOptions::new().program(program))
            .max_run_time(Duration::from_millis(limit));
    }
    let mut builder = Target::builder().policy(policy);
    if std::env::var_os("E2E_LIBC").is_some() {
        builder = builder.allow_set(NamedSet::Libc);
    }
    if let Ok(soname) = std::env::var("E2E_LIBRARY") {
        // SAFETY: a library of the system, chosen by a test.
        builder = unsafe { builder.allow_library(soname) };
    }
    if std::env::var_os("E2E_ONE_IMAGE").is_some() {
        // The next image lies where the one before lay.
        builder = builder.code_cache(64 << 10, 1);
    }
    builder
}

/// Serves for ever, or until something has changed.
fn serve(address: &str, once: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut state = State::default();
    let mut target = builder().listen(address)?;
    println!("ifunc: ready {}", target.address());
    let mut said = 0;
    let done = |state: &State| {
        let changed = state.changes != said;
        if changed {
            said = state.changes;
            println!("counter: {}", state.counter);
            // A test that reads this through a pipe must not wait for the buffer.
            let _ = std::io::stdout().flush();
        }
        changed && once
    };
    if std::env::var_os("E2E_THREAD").is_some() {
        let serve = || target.serve_until(&mut state, done);
        std::thread::scope(|scope| scope.spawn(serve).join())
            .map_err(|_| "the thread that serves panicked")??;
    } else {
        target.serve_until(&mut state, done)?;
    }
    Ok(())
}
