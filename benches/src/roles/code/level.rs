//! A source and a target of a level in one thread, so that a runner process has a core of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ifunc_bench_ifuncs::{Fresh, Tally, sum_fresh};
use ifunc_rt::{Error, Handle, Level, Policy, RunnerOptions, Source, Target};

use crate::cores::{pin, pin_to_any};
use crate::pair::Pattern;
use crate::program::Starter;
use crate::slots::{Sample, Slot};

/// Timeout of an invocation.
const TIMEOUT: Duration = Duration::from_secs(20);

/// `BENCH_LEVEL` is the level, and `BENCH_OTHER_CPU` the processor that a runner process may use beside the role's own. In a
/// ping-pong each message is a call, whose answer is awaited.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let cpu =
        |name: &str| -> Result<usize> { Ok(std::env::var(name).with_context(|| name.to_owned())?.parse()?) };
    let (own, other) = (cpu("BENCH_CPU")?, cpu("BENCH_OTHER_CPU")?);
    let level = match &*std::env::var("BENCH_LEVEL").context("BENCH_LEVEL")? {
        "panics" => Level::Panics,
        "contained" => Level::Contained,
        "process" => Level::Process,
        other => bail!("there is no level `{other}`"),
    };
    let address = format!("loopback:ifunc-bench-level-{}", std::process::id());
    // SAFETY: only this process sends code, which is that of `ifunc-bench-ifuncs`.
    let policy = unsafe { Policy::trust_every_peer() }
        .level(level)
        .runners(RunnerOptions::new().program(std::env::current_exe()?));
    // A runner process inherits the processors of the thread that starts the first one.
    pin_to_any(&[own, other])?;
    let target = Target::builder().policy(policy).listen(&address)?;
    pin(own)?;
    let source = Source::connect(&address)?;
    let mut pair = Both {
        handle: source.register::<sum_fresh>()?,
        target,
        tally: Tally::default(),
    };
    while let Some((pattern, slot)) = starter.next::<(Pattern, Slot)>()? {
        pair.tally = Tally::default();
        let begin = Instant::now();
        match pattern {
            Pattern::PingPong => pair.calls(slot)?,
            Pattern::Stream => pair.stream(slot)?,
        }
        let took = begin.elapsed();
        let expected = (0..slot.operations).fold(0_u64, |sum, seed| {
            sum.wrapping_add(slot.payload.sum(slot.size, seed, 0))
        });
        let tally = pair.tally;
        ensure!(
            (tally.count, tally.sum) == (slot.operations, expected),
            "{} messages of {} bytes led to {tally:?}",
            slot.operations,
            slot.size
        );
        starter.reply(&Sample {
            ns: took.as_nanos() as f64 / slot.operations as f64,
            percentiles: None,
        })?;
    }
    Ok(())
}

struct Both {
    handle: Handle<sum_fresh>,
    target: Target,
    tally: Tally,
}

impl Both {
    fn calls(&mut self, slot: Slot) -> Result<()> {
        let len = slot.size;
        for seed in 0..slot.operations {
            let mut call = self.handle.try_call(&Fresh { len, seed })?;
            let mut polls = 0_u32;
            let mut until = None;
            loop {
                self.target.poll(&mut self.tally);
                if let Some(answer) = call.try_wait() {
                    break answer?;
                }
                polls += 1;
                if polls.is_multiple_of(1024) {
                    let until = *until.get_or_insert_with(|| Instant::now() + TIMEOUT);
                    ensure!(Instant::now() < until, "no answer for {} s", TIMEOUT.as_secs());
                }
            }
        }
        Ok(())
    }

    fn stream(&mut self, slot: Slot) -> Result<()> {
        let len = slot.size;
        let until = Instant::now() + TIMEOUT;
        let mut sent = 0;
        while self.tally.count < slot.operations {
            // As many as there are credits for.
            while sent < slot.operations {
                match self.handle.try_send(&Fresh { len, seed: sent }) {
                    Ok(()) => sent += 1,
                    Err(Error::WouldBlock { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if self.target.poll(&mut self.tally) == 0 {
                ensure!(Instant::now() < until, "messages that do not arrive");
            }
        }
        Ok(())
    }
}
