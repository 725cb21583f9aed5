//! Calls of a host function, from an ifunc and through an ordinary GOT. Each role is a process with one
//! thread.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Tally, steps};
use ifunc_rt::{Policy, Source, Target};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::program::Starter;
use crate::roles::time_slots;

/// Timeout of an invocation.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The called function: the next number of a sequence, so that each call depends on the previous one.
#[ifunc::export]
fn next_step(x: u64) -> u64 {
    next(x)
}

fn next(x: u64) -> u64 {
    x.wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

/// An ifunc calls the export once per operation of a slot.
pub(in crate::roles) fn out_of_an_ifunc(starter: Starter) -> Result<()> {
    let address = format!("loopback:ifunc-bench-calls-{}", std::process::id());
    // SAFETY: only this process sends code, which is that of `ifunc-bench-ifuncs`.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&address)?;
    let source = Source::connect(&address)?;
    let steps = source.register::<steps>()?;
    let mut tally = Tally::default();
    run(starter, |n| {
        let mut call = steps.try_call(&n)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            target.poll(&mut tally);
            if let Some(answer) = call.try_wait() {
                return Ok(answer?);
            }
            ensure!(Instant::now() < until, "no answer for {} s", TIMEOUT.as_secs());
        }
    })
}

/// A function of `BENCH_LIBRARY` calls a function of `BENCH_PROVIDER`; the dynamic loader opens both.
pub(in crate::roles) fn through_a_got(starter: Starter) -> Result<()> {
    let open = |name: &str| -> Result<Library> {
        let path = std::env::var_os(name).with_context(|| format!("{name} must be a library"))?;
        // SAFETY: compiled from `c/step.c` and `c/steps.c`, which have no constructors.
        Ok(unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL)? })
    };
    let (_provider, library) = (open("BENCH_PROVIDER")?, open("BENCH_LIBRARY")?);
    // SAFETY: `c/steps.c` defines the function with this type.
    let steps: Symbol<unsafe extern "C" fn(u64) -> u64> = unsafe { library.get(b"steps\0")? };
    // SAFETY: as above.
    run(starter, |n| Ok(unsafe { steps(n) }))
}

/// Times `steps`, and checks their result.
fn run(starter: Starter, mut steps: impl FnMut(u64) -> Result<u64>) -> Result<()> {
    time_slots(starter, |slot| {
        let expected = (0..slot.operations).fold(1, |x, _| next(x));
        let begin = Instant::now();
        let reached = steps(slot.operations)?;
        let took = begin.elapsed();
        ensure!(
            reached == expected,
            "{} steps led to {reached}, not {expected}",
            slot.operations
        );
        Ok(took.as_nanos() as f64 / slot.operations as f64)
    })
}
