//! `cargo xtask build-time`: how long the build of a trivial ifunc takes after its dependencies are built, beside
//! `cargo build --release` of the same crate in the same run. It is printed and never judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::steps::{Steps, cargo, status};

/// Builds of each kind; the median counts.
const TIMES: usize = 5;

/// Measures both.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("build time of a trivial ifunc", measure);
}

fn measure() -> Result<String, String> {
    // As the checkout's alias builds it, which is there after the tests. Most of the time is the compilers'.
    let mut command = cargo(["build", "--quiet", "--locked", "--package", "cargo-ifunc"]);
    status(&mut command)?;
    let folder = crate::scratch().join("build-time");
    prepare(&folder)?;
    let ifunc = built("cargo-ifunc");
    let builds: [(&str, Command); 2] = [
        ("cargo ifunc build", {
            let mut command = Command::new(&ifunc);
            command.args(["ifunc", "build", "--quiet"]);
            command
        }),
        ("cargo build --release", cargo(["build", "--quiet", "--release"])),
    ];
    let mut medians = Vec::new();
    for (name, mut command) in builds {
        command
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .stdin(Stdio::null());
        // The dependencies, and the crate once.
        change(&folder, 0)?;
        timed(&mut command)?;
        let mut times = Vec::new();
        for round in 1..=TIMES {
            change(&folder, round)?;
            times.push(timed(&mut command)?);
        }
        times.sort();
        let median = times[TIMES / 2];
        let all: Vec<String> = times.iter().map(|time| milliseconds(*time)).collect();
        eprintln!(
            "    {name:21}  median {} of {}",
            milliseconds(median),
            all.join(", ")
        );
        medians.push(median);
    }
    let ratio = medians[0].as_secs_f64() / medians[1].as_secs_f64().max(f64::EPSILON);
    Ok(format!(
        "{} beside {} of `cargo build --release`: {ratio:.1} times",
        milliseconds(medians[0]),
        milliseconds(medians[1])
    ))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

fn timed(command: &mut Command) -> Result<Duration, String> {
    let started = Instant::now();
    let status = command.status().map_err(|e| format!("it does not start: {e}"))?;
    match status.success() {
        true => Ok(started.elapsed()),
        false => Err(format!("{command:?}: {status}")),
    }
}

/// Where a binary of this workspace lies.
fn built(name: &str) -> PathBuf {
    let scratch = crate::scratch();
    let target = scratch.parent().unwrap_or(&scratch);
    target.join("debug").join(name)
}

/// A package of one ifunc, with a workspace of its own.
fn prepare(folder: &Path) -> Result<(), String> {
    let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", folder.display());
    let root = crate::root().canonicalize().map_err(io)?;
    fs::create_dir_all(folder.join("src")).map_err(io)?;
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[package]\nname = \"trivial\"\nedition = \"2024\"\n\n[dependencies]\nifunc = {{ path = {:?} }}\n\n[workspace]\n",
            root.join("ifunc")
        ),
    )
    .map_err(io)?;
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(io)?;
    Ok(())
}

/// Another ifunc every time: what did not change would not be made again.
fn change(folder: &Path, round: usize) -> Result<(), String> {
    let text = format!(
        "#![no_std]\nuse ifunc::prelude::*;\n\n/// Adds.\n#[ifunc]\npub fn add(delta: u64, counter: &mut u64) -> u64 {{\n    *counter += delta + {round};\n    *counter\n}}\n"
    );
    let path = folder.join("src/lib.rs");
    fs::write(&path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
}
