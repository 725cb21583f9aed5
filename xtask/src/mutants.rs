//! `cargo xtask mutants`: puts bugs into the sources, one at a time, and counts those that the tests find.
//!
//! The program is the package `xtask/mutants`, a workspace of its own: it parses Rust, and this command has no dependencies.

use std::process::{Command, ExitCode, Stdio};

use crate::process::{cargo, end, status};
use crate::steps::Steps;

/// `cargo xtask mutants [--only AREA]... [--sample N] [--seed S] [--named TEXT]`
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(run(options))
}

fn run(options: &[String]) -> Result<(), String> {
    let there = cargo(["mutants", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Err("`cargo mutants` is missing\nhelp: cargo install cargo-mutants --locked".into());
    }
    status(package("run").arg("--").args(options))
}

/// The tests of that program, as a step.
pub(crate) fn tests(steps: &mut Steps) {
    steps.step("the program that makes mutants", || {
        status(&mut package("test")).map(|()| "passed".into())
    });
}

fn package(subcommand: &str) -> Command {
    let mut command = cargo([
        subcommand,
        "--quiet",
        "--locked",
        "--manifest-path",
        "xtask/mutants/Cargo.toml",
    ]);
    command.env("CARGO_TARGET_DIR", crate::scratch().join("mutants/tool"));
    command
}
