//! A kernel in a library with several slices: the target runs the best one for the CPU that it states.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ifunc_rt::{ByName, Handle, Policy, Source, Target};

use crate::program::Starter;
use crate::roles::time_slots;

/// Timeout of an invocation.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a vector in `c/slices.c`.
pub(crate) const KERNEL_BYTES: usize = 8 << 10;
/// Rounds after which they repeat.
const ROUNDS: u64 = 8;

/// `BENCH_LIBRARY` has the ifunc `BENCH_KERNEL`; the target states the CPU features `BENCH_CPU_FEATURES`. An operation is a round.
pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| name.to_owned());
    let kernel = variable("BENCH_KERNEL")?;
    let features = variable("BENCH_CPU_FEATURES")?.parse()?;
    let address = format!("loopback:ifunc-bench-kernel-{}", std::process::id());
    // SAFETY: only this process sends code, which is that of `c/slices.c`.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.limit_cpu_features(features).listen(&address)?;
    let source = Source::connect(&address)?;
    // SAFETY: the figure built it from `c/slices.c`.
    let handle = unsafe { source.load_path(variable("BENCH_LIBRARY")?)? };
    let one_turn: Vec<u64> = (0..ROUNDS)
        .map(|round| expected(&kernel, round))
        .collect::<Result<_>>()?;
    time_slots(starter, |slot| {
        let (turns, rest) = (slot.operations / ROUNDS, (slot.operations % ROUNDS) as usize);
        let sum = one_turn.iter().sum::<u64>() * turns + one_turn[..rest].iter().sum::<u64>();
        let begin = Instant::now();
        let answer = answer(&handle, &mut target, slot.operations)?;
        let took = begin.elapsed();
        ensure!(answer == sum, "`{kernel}` answered {answer}, not {sum}");
        Ok(took.as_nanos() as f64 / slot.operations as f64)
    })
}

fn answer(handle: &Handle<ByName>, target: &mut Target, rounds: u64) -> Result<u64> {
    let mut call = handle.try_call(&rounds.to_le_bytes())?;
    let until = Instant::now() + TIMEOUT;
    loop {
        target.poll(&mut ());
        if let Some(answer) = call.try_wait() {
            let answer = answer?;
            let bytes = <[u8; 8]>::try_from(&*answer).context("an answer of another size")?;
            return Ok(u64::from_le_bytes(bytes));
        }
        ensure!(Instant::now() < until, "no answer for {} s", TIMEOUT.as_secs());
    }
}

/// What a round of a kernel yields.
fn expected(kernel: &str, round: u64) -> Result<u64> {
    let elements = (KERNEL_BYTES / size_of::<f32>()) as u64;
    Ok(match kernel {
        "popcount" => (0..elements / 2)
            .map(|i| u64::from((i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round).count_ones()))
            .sum(),
        "product" => (0..elements).map(|i| i % 16 * (i % 8 + round)).sum(),
        other => bail!("there is no kernel `{other}`"),
    })
}
