//! The end-to-end tests again: over other transports than shared memory, and with the least room that a target can have.

use std::process::Command;

use crate::debian;
use crate::steps::{Steps, cargo};
use crate::test::transports;

/// Those whose processes are peers of each other, whatever carries the frames.
const BETWEEN_PROCESSES: &[&str] = &["mixed", "restart", "mismatch"];
/// Of them, those that compile nothing.
const SOON: &[&str] = &["mixed", "restart"];
/// Two credits and the smallest ring: frames wait for each other, wrap around and travel in fragments.
const SMALLEST: [(&str, &str); 2] = [("IFUNC_CREDITS", "2"), ("IFUNC_RING", "65536")];

/// What CI has the time for.
pub(crate) fn brief(steps: &mut Steps) {
    for over in over_ucx() {
        let name = format!("tests between processes, over {over}");
        steps.tests(&name, tests(SOON).env("IFUNC_TRANSPORT", over));
    }
    let name = "tests between processes, 2 credits and the smallest ring";
    steps.tests(name, tests(SOON).envs(SMALLEST));
}

/// Everything with the smallest rings, and what is between processes over every transport.
pub(crate) fn smallest(steps: &mut Steps) {
    crate::test::needs(steps);
    let mut all = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    steps.tests("tests, 2 credits and the smallest ring", all.envs(SMALLEST));
    for over in over_ucx() {
        let name = format!("tests between processes, over {over}, 2 credits and the smallest ring");
        let tests = &mut tests(&[BETWEEN_PROCESSES, &["c_side"]].concat());
        steps.tests(&name, tests.env("IFUNC_TRANSPORT", over).envs(SMALLEST));
    }
}

fn over_ucx() -> impl Iterator<Item = &'static str> {
    transports()
        .iter()
        .copied()
        .filter(|name| name.starts_with("ucx"))
}

/// Some of the end-to-end tests, of the whole workspace: with its features, nothing is compiled again.
fn tests(names: &[&str]) -> Command {
    let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    for name in names {
        command.args(["--test", name]);
    }
    if debian::is_debian() {
        command.env("IFUNC_REQUIRE_UCX", "1");
    }
    command
}
