//! `cargo xtask miri`: runs tests under Miri.

use std::process::{Command, Stdio};

use crate::steps::Steps;

/// Packages whose tests only make system calls that Miri implements.
const PACKAGES: &[&str] = &["ifunc-abi"];

/// Runs the tests of [`PACKAGES`].
pub(crate) fn run(steps: &mut Steps) {
    // `cargo` of this process is the toolchain's own; only rustup's knows `+nightly`.
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo", "miri", "--version"]);
    let there = rustup
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !there {
        steps.step("miri", || {
            Err("Miri is missing\nhelp: rustup toolchain install nightly --component miri,rust-src".into())
        });
        return;
    }
    let folder = crate::scratch().join("miri");
    let mut miri = Command::new("rustup");
    miri.args(["run", "nightly", "cargo", "miri", "test", "--lib"]);
    miri.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    miri.current_dir(crate::root());
    // `cargo xtask` runs with the stable toolchain's variables; the nightly one must not see them.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        miri.env_remove(name);
    }
    miri.env("CARGO_TARGET_DIR", folder).stdin(Stdio::null());
    steps.tests("miri", &mut miri);
}
