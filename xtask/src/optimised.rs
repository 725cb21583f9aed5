//! The programs of this checkout that tests run optimised.

use std::process::Command;

use crate::process::{cargo, status};

/// Compiles what a message passes through as a release build does.
const PROFILE: &str = "xtask/src/optimised.toml";

/// Counts instructions.
pub(crate) const COUNTER: &str = "ifunc-instructions";
/// Simulates connections.
pub(crate) const SIMULATOR: &str = "ifunc-simulate";

/// Builds one of them. By hand: what the other one needs is not compiled after each change.
pub(crate) fn program(name: &str) -> Result<Command, String> {
    build(&[name], name)
}

/// Builds one of them for a step of the tests. On x86-64, where both run, it builds both, so that what both use is compiled once.
pub(crate) fn program_of_step(name: &str) -> Result<Command, String> {
    match cfg!(target_arch = "x86_64") {
        true => build(&[COUNTER, SIMULATOR], name),
        false => program(name),
    }
}

/// In the folder of the tests, which have compiled the macros, and not with the features of the workspace, some of which only tests need.
fn build(packages: &[&str], program: &str) -> Result<Command, String> {
    let mut build = cargo(["build", "--quiet", "--locked", "--config", PROFILE]);
    build.args(packages.iter().flat_map(|package| ["--package", package]));
    // Incremental compilation would cut the code into other units.
    status(build.env("CARGO_INCREMENTAL", "0"))?;
    Ok(Command::new(crate::target().join("debug").join(program)))
}
