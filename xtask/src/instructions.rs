//! `cargo xtask instructions`: counts the instructions of a message and compares them with a budget. The counter is
//! `benches/instructions`.

use crate::optimised;
use crate::process::output;
use crate::steps::Steps;

/// Compares them with their budget.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("instructions of a message, and their budget", check);
}

fn check() -> Result<String, String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok("SKIPPED: the budget is one of x86-64".into());
    }
    let mut counter = optimised::program(optimised::COUNTER)?;
    let said = output(counter.arg("check")).map_err(|error| {
        format!("{error}: a budget is exceeded, or nothing could be counted; the output above explains it")
    })?;
    let counts = said.lines().filter_map(|line| {
        let (what, rest) = line.split_once(' ')?;
        let (count, _) = rest.split_once(' ')?;
        Some(format!("{what} {count}"))
    });
    Ok(counts.collect::<Vec<_>>().join(", "))
}
