//! The tests between processes, unchanged: the tests on one host, their targets on the other.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::exchange::Route;
use crate::program::Program;

/// What they may take, compiling included.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs them. How many passed.
///
/// # Errors
/// One of them failed, or none ran.
pub(crate) fn run(quick: bool, route: &Route<'_>) -> Result<String, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command: Command = route.source.command(cargo);
    // With the features of the whole workspace: what was built before is not compiled again.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.args([
        "test",
        "--quiet",
        "--locked",
        "--offline",
        "--no-fail-fast",
        "--workspace",
    ]);
    let tests: &[&str] = match (quick, route.transport) {
        (true, _) => &["mixed"],
        // UCX 1.13 emulates puts over TCP, and aborts its process when it cannot confirm one because the peer was killed
        // (`ucp_put_handler`: "unexpected error: Endpoint timeout"): no targets are killed there.
        (false, "ucx-put") => &["mixed", "mismatch"],
        (false, _) => &["mixed", "restart", "mismatch"],
    };
    for test in tests {
        command.args(["--test", test]);
    }
    command.env("IFUNC_TRANSPORT", route.transport);
    command.env("E2E_HOST", route.target.ip);
    // Not in the middle of what the harness says.
    command.env("UCX_LOG_FILE", "stderr");
    // A target ends with the test that started it, also where that is aborted.
    let enter = format!("setpriv --pdeathsig KILL {}", route.target.enter().join(" "));
    command.env("E2E_ENTER", enter);
    let mut tests = Program::start("tests", &mut command, TIMEOUT)?;
    tests.end()?;
    let results = tests.said.iter().filter(|line| line.starts_with("test result: "));
    let passed: u32 = results
        .filter_map(|line| line.split(' ').nth(3)?.parse::<u32>().ok())
        .sum();
    match passed {
        0 => Err("no test ran".into()),
        passed => Ok(format!(
            "{passed} passed, on one host, with their targets on the other"
        )),
    }
}
