//! `cargo xtask loom`

use crate::steps::{Steps, cargo};

/// How often the explorer takes a thread away from what it does, where it need not: what finds nearly everything, and
/// still ends.
const PREEMPTIONS: (&str, &str) = ("LOOM_MAX_PREEMPTIONS", "3");

/// The models of what threads and processes share, in every order in which they may be run.
pub(crate) fn run(steps: &mut Steps) {
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
    let (name, usual) = PREEMPTIONS;
    if std::env::var_os(name).is_none() {
        models.env(name, usual);
    }
    steps.tests("loom", &mut models);
}
