//! `cargo xtask fuzz`: builds the targets of `fuzz/` with libFuzzer and AddressSanitizer, and runs each for a while.
//!
//! `cargo fuzz run TARGET` does the same for one target. This command needs no more than a nightly toolchain, and adds up what all of
//! them ran.

mod build;
mod options;
mod run;

use std::process::ExitCode;

use crate::process::end;
use crate::steps::Steps;
use options::Options;
use run::{Run, Total};

/// The command.
pub(crate) fn command(args: &[String]) -> ExitCode {
    end(Options::parse(args).and_then(|options| all(&options)).map(drop))
}

/// Ten seconds of each target, as a step.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("fuzz targets", || {
        let options = Options::parse(&["--quick".to_owned()])?;
        all(&options)
    });
}

/// Builds and runs the chosen targets. Returns what they ran in all.
fn all(options: &Options) -> Result<String, String> {
    if options.seeds {
        return build::seeds();
    }
    let targets = options.chosen(build::targets()?)?;
    let programs = build::build(&targets)?;
    if options.merge {
        return run::merge(&targets, &programs);
    }
    let seconds = options.seconds_each(targets.len());
    let mut runs = Vec::new();
    if !options.json {
        println!("{}", Run::HEAD);
    }
    for target in &targets {
        let run = run::run(target, &programs, seconds)?;
        if !options.json {
            println!("{}", run.line());
        }
        runs.push(run);
    }
    let total = Total::of(&runs);
    match options.json {
        true => println!("{}", total.json(&runs)),
        false => println!("{}", total.line()),
    }
    match runs.iter().find_map(|run| run.failed.as_ref()) {
        Some(why) => Err(why.clone()),
        None => Ok(total.line()),
    }
}
