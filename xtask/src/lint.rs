//! `cargo xtask lint`: formatting, clippy and documentation, with warnings denied.

use crate::process::cargo;
use crate::steps::Steps;

/// Runs all three.
pub(crate) fn run(steps: &mut Steps) {
    steps.command("format", &mut cargo(["fmt", "--all", "--check"]));
    steps.command(
        "clippy",
        &mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
    );
    steps.command(
        "docs",
        cargo([
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--locked",
        ])
        .env("RUSTDOCFLAGS", "-D warnings"),
    );
}
