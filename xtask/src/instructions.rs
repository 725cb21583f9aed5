//! `cargo xtask instructions`: counts the instructions of a message and compares them with a budget. The counter is
//! `benches/instructions`.

use std::process::Command;

use crate::process::{cargo, output, status};
use crate::steps::Steps;

/// The counter.
const PACKAGE: &str = "ifunc-instructions";
/// Compiles what a message passes through as a release build does.
const OPTIMISED: &str = "benches/instructions/optimised.toml";

/// Compares them with their budget.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("instructions of a message, and their budget", check);
}

fn check() -> Result<String, String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok("SKIPPED: the budget is one of x86-64".into());
    }
    // In the folder of the tests, which have compiled the macros, and not with the features of the workspace, some of which only
    // tests need. Incremental compilation would cut the code into other units.
    let build = [
        "build",
        "--quiet",
        "--locked",
        "--package",
        PACKAGE,
        "--config",
        OPTIMISED,
    ];
    status(cargo(build).env("CARGO_INCREMENTAL", "0"))?;
    let counter = crate::target().join("debug/ifunc-instructions");
    let said = output(Command::new(counter).arg("check")).map_err(|error| {
        format!("{error}: a budget is exceeded, or nothing could be counted; the output above explains it")
    })?;
    let counts = said.lines().filter_map(|line| {
        let (what, rest) = line.split_once(' ')?;
        let (count, _) = rest.split_once(' ')?;
        Some(format!("{what} {count}"))
    });
    Ok(counts.collect::<Vec<_>>().join(", "))
}
