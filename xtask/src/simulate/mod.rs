//! `cargo xtask simulate`: builds the simulator and runs it. What it does is in `simulate`.

use std::process::{ExitCode, Stdio};

use crate::optimised;
use crate::process::{end, output};
use crate::steps::Steps;

mod list;
mod mutants;

/// Seeds of a run with every commit, and of one every night.
const QUICK: &str = "4_000";
const FULL: &str = "100_000";

/// The command: `--mutants [TEXT]`, the bugs whose name contains a text, or the simulator's own options.
pub(crate) fn command(options: &[String]) -> ExitCode {
    if let [first, texts @ ..] = options
        && first == "--mutants"
    {
        let text = match texts {
            [] => "",
            [text] => text,
            _ => return end(Err("`--mutants` takes one text of the bugs' names".into())),
        };
        return end(mutants::run(text).map(drop));
    }
    let simulator = match optimised::program(optimised::SIMULATOR) {
        Ok(simulator) => simulator,
        Err(error) => return end(Err(error)),
    };
    // Its exit code tells whether there was a violation.
    match { simulator }.args(options).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) if status.code() == Some(2) => ExitCode::from(2),
        Ok(_) => ExitCode::FAILURE,
        Err(error) => end(Err(format!("the simulator does not start: {error}"))),
    }
}

/// Some seeds, as a step.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("simulated connections", || seeds(&["--seeds", QUICK]));
}

/// Many seeds, and the seeded bugs, as steps.
pub(crate) fn full(steps: &mut Steps) {
    steps.step("simulated connections", || seeds(&["--seeds", FULL]));
    steps.step("simulated floods", || seeds(&["--floods", "--seeds", FULL]));
    steps.step("seeded bugs of connections", || mutants::run(""));
}

fn seeds(options: &[&str]) -> Result<String, String> {
    let said = output(optimised::program(optimised::SIMULATOR)?.args(options))?;
    Ok(said.lines().last().unwrap_or_default().to_owned())
}
