//! Both sides sleep, and are woken, again and again: at the moments when one has just decided to sleep.

use std::time::{Duration, Instant};

use super::Found;
use super::looks::sleeps;
use super::options::Options;
use super::process::{Role, value};

/// Rounds in which a side did not sleep prove nothing. At least one in so many must have been with sleep.
const SLEPT: u64 = 10;
/// Without progress for so long, somebody sleeps for ever; the caller gives up before.
const STUCK: Duration = Duration::from_secs(60);

/// The rounds over one transport.
pub(super) fn run(options: &Options, transport: &str) -> Found {
    let (target, address) = Role::target(options, transport, "wakes", 16)?;
    let mut caller = Role::start(
        options,
        "caller",
        &[
            ("address", address),
            ("rounds", options.rounds.to_string()),
            ("milliseconds", options.waking.as_millis().to_string()),
            ("seed", options.seed.to_string()),
        ],
    )?;
    let before = sleeps(target.pid())?;
    let (mut shown, mut moved, mut last) = (Instant::now(), Instant::now(), 0);
    let done = loop {
        if let Some(done) = caller.look_for("done ")? {
            break done;
        }
        std::thread::sleep(Duration::from_millis(20));
        if caller.at != last {
            (last, moved) = (caller.at, Instant::now());
        }
        if moved.elapsed() > STUCK {
            return Err(format!("no progress for {STUCK:?} after {last} rounds"));
        }
        if shown.elapsed() > Duration::from_secs(10) {
            shown = Instant::now();
            println!("        {last} rounds over {transport}");
        }
    };
    let (slept, source_slept) = (sleeps(target.pid())? - before, sleeps(caller.pid())?);
    let rounds = value(&done, "rounds")?;
    let (at_slice, beside) = (value(&done, "slice")?, value(&done, "beside")?);
    let late = done
        .split(' ')
        .find_map(|word| word.strip_prefix("late="))
        .unwrap_or_default();
    let late: Vec<u64> = late.split(',').filter_map(|count| count.parse().ok()).collect();
    // The first column below which so many parts of all rounds lie.
    let below = |part: f64| {
        let mut sum = 0;
        let column = late.iter().position(|count| {
            sum += count;
            sum as f64 >= part * rounds as f64
        });
        1u64 << column.unwrap_or(late.len())
    };
    let longer: u64 = late.iter().skip(12).sum();
    caller.end()?;
    target.end()?;
    let figures = format!(
        "{rounds} rounds; the target slept {slept} times, the source {source_slept}; waited half of them < {} µs, 99.9 % < {} µs, the longest {} µs; {longer} of 4 ms or more, {at_slice} of them at 4.9 to 5.9 ms (beside it {beside} in 2 ms)",
        below(0.5),
        below(0.999),
        value(&done, "longest")?,
    );
    if slept < rounds / SLEPT || source_slept < rounds / SLEPT {
        return Err(format!("hardly anybody slept: {figures}"));
    }
    // Where nobody is lost, a wait of 5 ms is as rare as one of 4 or of 6 ms: a busy machine makes all of them.
    if at_slice > 5 + 3 * beside + rounds / 100_000 {
        return Err(format!(
            "wake-ups are lost, and made up for by a slice: {figures}"
        ));
    }
    Ok(figures)
}
