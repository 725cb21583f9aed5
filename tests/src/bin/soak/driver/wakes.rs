//! Both sides sleep, and are woken, again and again: at the moments when one has just decided to sleep.

use std::time::{Duration, Instant};

use ifunc_tests::role::number;

use super::Found;
use super::observe::sleeps;
use super::options::Options;
use super::process;

/// Rounds in which a side did not sleep prove nothing. At least one in so many must have been with sleep.
const SLEPT: u64 = 10;
/// Without progress for so long, a side sleeps for ever; the caller gives up before.
const STUCK: Duration = Duration::from_secs(60);

/// Over UCX, both sides look by themselves now and then, and UCX does. Not before the caller gives up.
const ALONE: [(&str, &str); 3] = [
    ("IFUNC_TEST_UCX_SLICE", "60000"),
    ("UCX_KEEPALIVE_INTERVAL", "60s"),
    ("UCX_TCP_KEEPIDLE", "60s"),
];

/// The rounds over one transport.
pub(super) fn run(options: &Options, transport: &str) -> Found {
    let (target, address) = process::target_with(options, transport, "wakes", 16, &ALONE)?;
    let args = [
        ("address", address),
        ("rounds", options.rounds.to_string()),
        ("milliseconds", options.waking.as_millis().to_string()),
        ("seed", options.seed.to_string()),
    ];
    let mut caller = process::start_with(options, "caller", &args, &ALONE)?;
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
    let rounds = number(&done, "rounds")?;
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
        "{rounds} rounds; the target slept {slept} times, the source {source_slept}; waited half of them < {} µs, 99.9 % < {} µs, the longest {} µs; {longer} of 4 ms or more",
        below(0.5),
        below(0.999),
        number(&done, "longest")?,
    );
    if slept < rounds / SLEPT || source_slept < rounds / SLEPT {
        return Err(format!("hardly anybody slept: {figures}"));
    }
    Ok(figures)
}
