//! `cargo xtask faults`: builds and runs the fault matrix of `tests/src/faults`.

use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};

use crate::plan::Tier;
use crate::process::{build_ifuncs, built, end, last_line, output, status};
use crate::steps::Steps;
use crate::transports::{between_processes, key};

/// All cells of shared memory but most of those of groups, one cell of each state of the other transports.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("faults, in short", || {
        let mut args = vec!["--quick"];
        for transport in between_processes(Tier::Commit) {
            args.extend(["--only", transport]);
        }
        output(&mut driver(&args)?).map(|said| last_line(&said))
    });
}

/// The whole matrix.
pub(crate) fn full(steps: &mut Steps) {
    steps.step("faults", || {
        let mut args = Vec::new();
        for transport in between_processes(Tier::Nightly) {
            args.extend(["--only", transport]);
        }
        output(&mut driver(&args)?).map(|said| last_line(&said))
    });
}

/// The matrix, with the arguments of the command line. The last line on standard output says how many cells passed.
pub(crate) fn command(args: &[String]) -> ExitCode {
    end(driver(args).and_then(|mut driver| status(&mut driver)))
}

/// Builds the programs and ifuncs.
fn driver<S: AsRef<OsStr>>(args: &[S]) -> Result<Command, String> {
    let programs = ["faults", "fault-source", "fault-target"];
    let folder = built(&programs)?;
    build_ifuncs("ifunc-tests-ifuncs")?;
    let target = crate::target();
    let mut driver = Command::new(folder.join("faults"));
    driver
        .args(args)
        .envs(key()?)
        .env("FAULT_LIBRARIES", target.join("ifunc/release"))
        .stdin(Stdio::null());
    Ok(driver)
}
