//! A source that calls at the very moments when the target goes to sleep, and is asleep itself when it is answered.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use ifunc_rt::{ByName, Error, Handle};

use super::random::Random;
use super::{Arguments, Result, connect, library, say};
use crate::ledger::words;

/// The target looks for work so long before it sleeps, and the source for answers: calls and answers come on either side
/// of it.
const RACE: u64 = 400_000;
/// A round that takes longer has lost a wake-up.
const LOST: Duration = Duration::from_secs(5);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);
/// The last column has all that is longer.
const BUCKETS: usize = 24;

/// `rounds`, `milliseconds`, `seed`.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let rounds: u64 = args.number("rounds")?;
    let until = Instant::now() + Duration::from_millis(args.number("milliseconds")?);
    let mut random = Random::new(args.number("seed")?);
    let source = connect(args)?;
    // SAFETY: built from this checkout.
    let spin = unsafe { source.load_path(library(args, "t_soak_spin")?)? };
    let turns_per_microsecond = calibrate(&spin)?;

    // Waited on top of what the ifunc was to take, by powers of two of microseconds.
    let mut late = [0u64; BUCKETS];
    let mut longest = Duration::ZERO;
    let mut said = Instant::now();
    let mut first = 0;
    let mut done = 0;
    while done < rounds && (done % 64 != 0 || Instant::now() < until) {
        let pause = Duration::from_nanos(random.below(RACE));
        let begun = Instant::now();
        while begun.elapsed() < pause {
            spin_loop();
        }
        let busy = random.below(RACE) / 1000;
        let turns = busy * turns_per_microsecond;
        let begun = Instant::now();
        let mut call = spin.call(&turns.to_le_bytes())?;
        let answer = match call.wait_timeout(LOST) {
            Err(Error::Timeout { .. }) => {
                return Err(format!("round {done}: no side woke up within {LOST:?}").into());
            }
            other => other?,
        };
        let took = begun.elapsed().saturating_sub(Duration::from_micros(busy));
        let number = words::<1>(&answer).ok_or("no number was answered")?[0];
        if done == 0 {
            first = number;
        }
        if number != first + done {
            return Err(format!("round {done} was answered {number}, not {}", first + done).into());
        }
        done += 1;
        longest = longest.max(took);
        let micros = took.as_micros() as u64;
        late[(u64::BITS - micros.leading_zeros()).min(BUCKETS as u32 - 1) as usize] += 1;
        if said.elapsed() > PROGRESS {
            said = Instant::now();
            say(&format!("at {done}"));
        }
    }
    let late: Vec<String> = late.iter().map(u64::to_string).collect();
    say(&format!(
        "done rounds={done} longest={} late={}",
        longest.as_micros(),
        late.join(",")
    ));
    // The driver looks how often this process slept.
    super::wait_for_driver();
    Ok(())
}

/// Turns of the ifunc's loop in a microsecond.
fn calibrate(spin: &Handle<ByName>) -> Result<u64> {
    const TURNS: u64 = 100_000;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        drop(spin.call(&TURNS.to_le_bytes())?.wait()?);
        best = best.min(begun.elapsed());
    }
    Ok((TURNS * 1000 / best.as_nanos().max(1) as u64).max(1))
}
