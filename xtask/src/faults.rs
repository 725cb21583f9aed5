//! `cargo xtask faults`

use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};

use crate::steps::{Steps, cargo, output, status};

/// What the tests' own run takes: all of shared memory, one cell of each state of the others.
pub(crate) fn quick(steps: &mut Steps, transports: &[&str]) {
    steps.step("faults, in short", || {
        let mut args = vec!["--quick"];
        for transport in transports {
            args.extend(["--only", transport]);
        }
        let said = output(&mut driver(&args)?)?;
        let counts = said.lines().rfind(|line| !line.trim().is_empty());
        Ok(counts.unwrap_or_default().to_owned())
    });
}

/// The matrix, with the arguments of the command line. The last line on standard output says how many cells passed.
pub(crate) fn command(args: &[String]) -> ExitCode {
    match driver(args).and_then(|mut driver| status(&mut driver)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds what it needs. The features are those of the whole workspace, so that of what the tests were built from only
/// the runtime is built again, with its failpoints.
fn driver<S: AsRef<OsStr>>(args: &[S]) -> Result<Command, String> {
    status(&mut cargo([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--features",
        "ifunc-tests/failpoints",
        "--bin",
        "faults",
        "--bin",
        "fault-source",
        "--bin",
        "fault-target",
    ]))?;
    status(&mut cargo([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "cargo-ifunc",
        "--",
        "ifunc",
        "build",
        "--quiet",
        "--package",
        "ifunc-tests-ifuncs",
    ]))?;
    let scratch = crate::scratch();
    let target = scratch.parent().unwrap_or(&scratch);
    let mut driver = Command::new(target.join("debug/faults"));
    driver
        .args(args)
        .env("FAULT_LIBRARIES", target.join("ifunc/release"))
        .stdin(Stdio::null());
    Ok(driver)
}
