//! The honest source: it calls, one call after the other, and every answer must be the next number.

use std::time::{Duration, Instant};

use ifunc_rt::{Source, SourceOptions};

use crate::{Result, next_line, say};

/// Longer than a call takes on a machine that is busy with attackers.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two calls: a source that polls without end would measure itself.
const PAUSE: Duration = Duration::from_micros(200);

/// Reads how many milliseconds to call for, and says what the calls took, until there is nothing more to read.
pub(crate) fn run(address: &str, library: &str) -> Result {
    let options = SourceOptions::default()
        .timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        // A lost connection is an error: the target ends none by itself.
        .reconnect(Duration::ZERO);
    let source = Source::connect_with(address, options)?;
    // SAFETY: built from this checkout.
    let add = unsafe { source.load_path(library)? };
    say("ready");
    let mut sum = 0_u64;
    while let Some(line) = next_line() {
        let until = Instant::now() + Duration::from_millis(line.parse()?);
        let mut took = Vec::new();
        while Instant::now() < until {
            let begin = Instant::now();
            let answer = add.call(&1_u64.to_le_bytes())?.wait_bytes()?;
            took.push(begin.elapsed());
            sum += 1;
            if answer[..] != sum.to_le_bytes() {
                return Err(format!("call {sum} was answered {answer:?}").into());
            }
            std::thread::sleep(PAUSE);
        }
        took.sort();
        let at = |part: usize| took.get((took.len() * part / 1000).min(took.len().saturating_sub(1)));
        let micros = |part| at(part).map_or(0, Duration::as_micros);
        say(&format!(
            "calls={} p50={} p99={} max={} sum={sum}",
            took.len(),
            micros(500),
            micros(990),
            micros(1000)
        ));
    }
    Ok(())
}
