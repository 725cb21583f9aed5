//! `cargo xtask two-hosts`: builds and runs `tests/src/bin/two-hosts`.

use std::process::{Command, ExitCode, Stdio};

use crate::debian;
use crate::process::{built, end, lines, status};
use crate::steps::Steps;
use crate::transports::key;

/// The command. Its last line is the program's: how many passed.
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
    end(debian::ensure()
        .and_then(|_| program(options))
        .and_then(|mut program| status(&mut program)))
}

/// A short run, as a step.
pub(crate) fn quick(steps: &mut Steps) {
    step(steps, &["--quick".into()]);
}

/// All of it, as a step.
pub(crate) fn full(steps: &mut Steps) {
    step(steps, &[]);
}

fn step(steps: &mut Steps, options: &[String]) {
    steps.step("two hosts, made of network namespaces", || {
        let (mut counts, mut why) = (None, None);
        lines(&mut program(options)?, |line| {
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

/// Builds it, and the `cargo-ifunc` beside it, which it runs.
fn program(options: &[String]) -> Result<Command, String> {
    let mut command = Command::new(built(&["two-hosts", "cargo-ifunc"])?.join("two-hosts"));
    command
        .args(options)
        .envs(key()?)
        .current_dir(crate::root())
        .stdin(Stdio::null());
    Ok(command)
}
