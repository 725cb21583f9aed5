//! `cargo xtask lint`: formatting, clippy and documentation, with warnings denied.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::plan::Tier;
use crate::process::cargo;
use crate::steps::Steps;

/// Packages that this repository alone runs: with each commit, their documentation would take as long again as that of the others.
const UNDOCUMENTED: [&str; 5] = [
    "example-*",
    "corpus-*",
    "ifunc-bench*",
    "ifunc-tests*",
    "*-ifuncs",
];

/// Runs all three.
pub(crate) fn run(steps: &mut Steps) {
    steps.command("format", &mut cargo(["fmt", "--all", "--check"]));
    steps.command(
        "clippy",
        &mut cargo([
            "clippy",
            "--workspace",
            // The sources of another package.
            "--exclude",
            "ifunc-rt-models",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
    );
    let mut docs = cargo([
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ]);
    if steps.tier() == Tier::Commit {
        docs.args(UNDOCUMENTED.iter().flat_map(|package| ["--exclude", package]));
    }
    // What clippy has checked is not checked again: its compiler is that of `cargo clippy`, with the same arguments.
    if let Some(driver) = clippy_driver() {
        docs.env("RUSTC_WORKSPACE_WRAPPER", driver)
            .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    steps.command("docs", docs.env("RUSTDOCFLAGS", "-D warnings"));
}

/// The compiler that `cargo clippy` runs, if it is where rustup installs it.
fn clippy_driver() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    Some(sysroot.join("bin/clippy-driver")).filter(|driver| driver.is_file())
}
