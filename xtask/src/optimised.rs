//! The programs of this checkout that tests run optimised.

use std::process::Command;

use crate::process::{cargo, status};

/// Compiles what a message passes through as a release build does.
const PROFILE: &str = "xtask/src/optimised.toml";

/// Counts instructions.
pub(crate) const COUNTER: &str = "ifunc-instructions";
/// Simulates connections.
pub(crate) const SIMULATOR: &str = "ifunc-simulate";

/// Builds one of them: in the folder of the tests, which have compiled the macros, and not with the features of the workspace, some of which
/// only tests need.
pub(crate) fn program(name: &str) -> Result<Command, String> {
    let mut build = cargo([
        "build",
        "--quiet",
        "--locked",
        "--config",
        PROFILE,
        "--package",
        name,
    ]);
    // Incremental compilation would cut the code into other units.
    status(build.env("CARGO_INCREMENTAL", "0"))?;
    Ok(Command::new(crate::target().join("debug").join(name)))
}
