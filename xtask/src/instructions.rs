//! `cargo xtask instructions`: how many a message takes, counted and kept within a budget. What is counted is in
//! `benches/instructions`.

use std::process::Command;

use crate::steps::{Steps, cargo, output, status};

/// Optimised as a release is, in the folder of the tests: what runs while cargo compiles is there already.
const OPTIMISED: &[(&str, &str)] = &[
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_DEV_DEBUG", "false"),
    ("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false"),
    ("CARGO_PROFILE_DEV_INCREMENTAL", "false"),
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_OVERFLOW_CHECKS", "true"),
];

/// Compares them with their budget.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("instructions of a message, and their budget", judge);
}

fn judge() -> Result<String, String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok("SKIPPED: the budget is one of x86-64".into());
    }
    let mut build = cargo(["build", "--quiet", "--locked", "--package", "ifunc-instructions"]);
    build.envs(OPTIMISED.iter().copied());
    status(&mut build)?;
    let said = output(Command::new(crate::target().join("debug/ifunc-instructions")).arg("judge"))?;
    let counts = said.lines().filter_map(|line| {
        let (count, _budget) = line.rsplit_once(' ')?;
        Some(count.to_owned())
    });
    Ok(counts.collect::<Vec<_>>().join(", "))
}
