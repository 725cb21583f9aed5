//! `cargo xtask loom`

use crate::process::cargo;
use crate::steps::Steps;

/// How often loom preempts a thread that could go on, in one execution. With three it finds nearly everything and still ends.
const PREEMPTIONS: &str = "LOOM_MAX_PREEMPTIONS";

/// The models in a small form: one preemption finds most of what a wrong order breaks.
pub(crate) fn small(steps: &mut Steps) {
    models(steps, "1");
}

/// The models of what threads and processes share, in every order in which they may be run.
pub(crate) fn run(steps: &mut Steps) {
    models(steps, "3");
}

fn models(steps: &mut Steps, preemptions: &str) {
    let mut models = cargo([
        "test",
        "-p",
        "ifunc-rt",
        "--lib",
        "--release",
        "--locked",
        "model::",
    ]);
    // Other flags are another build of everything: in a folder of its own, nothing else is built again.
    models.env("CARGO_TARGET_DIR", crate::scratch().join("loom"));
    models.env_remove("CARGO_ENCODED_RUSTFLAGS");
    models.env("RUSTFLAGS", "--cfg loom");
    if std::env::var_os(PREEMPTIONS).is_none() {
        models.env(PREEMPTIONS, preemptions);
    }
    steps.tests("loom", &mut models);
}
