//! `cargo xtask two-hosts`

use std::process::{Command, ExitCode};

use crate::debian;
use crate::steps::{Steps, cargo, lines, status};

/// The command, whose last line is its program's: how many passed.
pub(crate) fn command(options: &[String]) -> ExitCode {
    match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--quick"] | ["--only", _] => {}
        _ => {
            eprintln!(
                "error: unknown arguments: {}\nhelp: cargo xtask two-hosts [--quick | --only PART]",
                options.join(" ")
            );
            return ExitCode::from(2);
        }
    }
    match debian::ensure().and_then(|_| status(&mut program(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What takes seconds, as a step.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("two hosts, made of network namespaces", || {
        let (mut counts, mut why) = (None, None);
        lines(&mut program(&["--quick".into()]), |line| {
            if line.starts_with("NOT TRIED") {
                why = Some(line.to_owned());
            }
            if line.ends_with(" failed") && line.contains(" passed, ") {
                counts = Some(line.to_owned());
            }
        })?;
        let counts = counts.ok_or("it did not say how many passed")?;
        Ok(why.unwrap_or(counts))
    });
}

fn program(options: &[String]) -> Command {
    let mut command = cargo([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "ifunc-tests",
        "--bin",
        "two-hosts",
        "--",
    ]);
    command.args(options);
    command
}
