//! `cargo xtask bench`: builds the runner and the ifuncs, and runs it. What it does is in `benches`.

use std::process::{Command, ExitCode, Stdio};

use crate::steps::{cargo, end, ifunc, status};

/// The command, with the arguments of the runner's `run`.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(run(options))
}

fn run(options: &[String]) -> Result<(), String> {
    status(&mut cargo([
        "build",
        "--locked",
        "--release",
        "--package",
        "ifunc-bench",
    ]))?;
    status(&mut ifunc(&["build", "--package", "ifunc-bench-ifuncs"]))?;
    let target = crate::target();
    let mut bench = Command::new(target.join("release/ifunc-bench"));
    bench
        .arg("run")
        .args(options)
        .env("IFUNC_LIB_DIR", target.join("ifunc/release"))
        .stdin(Stdio::null());
    status(&mut bench)
}
