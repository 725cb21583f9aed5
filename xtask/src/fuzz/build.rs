//! Building the targets, as `cargo fuzz` does.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::status;

/// How `cargo fuzz` compiles: coverage for libFuzzer, AddressSanitizer, and `cfg(fuzzing)`.
const FLAGS: [&str; 8] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Zsanitizer=address",
    "-Ccodegen-units=1",
];
/// With a target, the flags are for the programs alone, and not for build scripts and macros.
const TARGET: &str = match cfg!(target_arch = "aarch64") {
    true => "aarch64-unknown-linux-gnu",
    false => "x86_64-unknown-linux-gnu",
};

/// The package of the targets.
pub(super) fn package() -> PathBuf {
    crate::root().join("fuzz")
}

/// What the targets find, and what is built for them.
pub(super) fn scratch() -> PathBuf {
    crate::target().join("fuzz")
}

/// The names of the targets.
pub(super) fn targets() -> Result<Vec<String>, String> {
    let folder = package().join("fuzz_targets");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let path = file.ok()?.path();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            path.file_stem()?
                .to_str()
                .filter(|_| is_source)
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Builds the targets. Returns the folder of their programs.
pub(super) fn build(targets: &[String]) -> Result<PathBuf, String> {
    let mut build = cargo("build")?;
    build.args(targets.iter().flat_map(|target| ["--bin", target]));
    status(&mut build)?;
    Ok(scratch().join(TARGET).join("release"))
}

/// Writes the first inputs of all targets.
pub(super) fn seeds() -> Result<String, String> {
    status(cargo("run")?.args(["--example", "seeds"]))?;
    Ok("the first inputs are in `fuzz/corpus`".into())
}

/// A cargo command of the nightly toolchain in the package of the targets.
fn cargo(subcommand: &str) -> Result<Command, String> {
    let mut version = nightly(&["--version"]);
    let there = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return Err(
            "fuzzing needs a nightly toolchain: stable Rust has no sanitizers\n\
                    help: rustup toolchain install nightly --profile minimal"
                .into(),
        );
    }
    let mut command = nightly(&[subcommand, "--quiet", "--release", "--locked", "--target", TARGET]);
    command
        .arg("--manifest-path")
        .arg(package().join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", scratch())
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    Ok(command)
}

fn nightly(args: &[&str]) -> Command {
    // `cargo` of this process is the toolchain's own; only rustup's knows `nightly`.
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo"]).args(args);
    rustup.current_dir(crate::root()).stdin(Stdio::null());
    // `cargo xtask` runs with the stable toolchain's variables; the nightly one must not see them.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        rustup.env_remove(name);
    }
    rustup
}
