//! `cargo xtask loom`: the models of what threads and processes share, in every order of their steps that loom explores.
//!
//! The cfg is given to our own crate alone, by `cargo rustc`. Its dependencies are those of the other tests, and are compiled once.

use crate::process::cargo;
use crate::programs::{self, Runs};
use crate::steps::Steps;

/// The packages that have models.
const PACKAGES: &[&str] = &["ifunc-rt"];
/// How often loom preempts a thread that could go on, in one execution.
const PREEMPTIONS: &str = "LOOM_MAX_PREEMPTIONS";

/// With two preemptions, which takes half a minute.
pub(crate) fn small(steps: &mut Steps) {
    models(steps, "2");
}

/// With three, which finds nearly everything and still ends.
pub(crate) fn run(steps: &mut Steps) {
    models(steps, "3");
}

fn models(steps: &mut Steps, preemptions: &str) {
    let asked = std::env::var(PREEMPTIONS);
    let preemptions = asked.as_deref().unwrap_or(preemptions);
    let name = format!("models, {preemptions} preemptions");
    steps.step(&name, || {
        let mut all = Vec::new();
        for package in PACKAGES {
            // What only other tests use is compiled here, too: clippy judges it with them.
            let mut build = cargo([
                "rustc",
                "--locked",
                "--package",
                package,
                "--lib",
                "--profile",
                "test",
            ]);
            build.args([
                "--message-format=json-render-diagnostics",
                "--",
                "--cfg=loom",
                "-Awarnings",
            ]);
            all.extend(programs::built_by(build)?);
        }
        let mut runs = Runs::new(&["model::"]);
        runs.env.push((PREEMPTIONS, preemptions));
        runs.logs = "models";
        programs::run(&all, &runs)
    });
}
