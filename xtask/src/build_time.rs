//! `cargo xtask build-time`: how long the build of a trivial ifunc takes after its dependencies are built, beside
//! `cargo build --release` of the same crate in the same run. It is printed and never a failure.
//! On a busy machine, compare the processor time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{cargo, status};
use crate::steps::Steps;
use crate::usage::{Stopwatch, Usage};

/// Builds of each kind; the median counts.
const TIMES: usize = 5;

/// How the command was built.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    folder: &'static str,
    said: &'static str,
}

const DEV: Profile = Profile {
    name: "dev",
    folder: "debug",
    said: "the command without optimisation",
};
const RELEASE: Profile = Profile {
    name: "release",
    folder: "release",
    said: "the command as it is installed",
};

/// Measures both with the unoptimised command, which the tests have built.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("build time of a trivial ifunc", || measure(DEV));
}

/// Measures both with the command as users install it.
pub(crate) fn release(steps: &mut Steps) {
    steps.step("build time of a trivial ifunc", || measure(RELEASE));
}

fn measure(profile: Profile) -> Result<String, String> {
    let mut command = cargo(["build", "--quiet", "--locked", "--package", "cargo-ifunc"]);
    command.args(["--profile", profile.name]);
    status(&mut command)?;
    let folder = crate::scratch().join("build-time");
    prepare(&folder)?;
    let ifunc = built("cargo-ifunc", profile);
    let builds: [(&str, Command); 2] = [
        ("cargo ifunc build", {
            let mut command = Command::new(&ifunc);
            command.args(["ifunc", "build", "--quiet"]);
            command
        }),
        ("cargo build --release", cargo(["build", "--quiet", "--release"])),
    ];
    let mut results = Vec::new();
    for (name, mut command) in builds {
        command
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .stdin(Stdio::null());
        // Builds the dependencies and the crate once.
        change(&folder, 0)?;
        timed(&mut command)?;
        let mut times = Vec::new();
        let mut used = Duration::ZERO;
        for round in 1..=TIMES {
            change(&folder, round)?;
            let taken = timed(&mut command)?;
            times.push(taken.wall);
            used += taken.cpu;
        }
        times.sort();
        let taken = Usage {
            wall: times[TIMES / 2],
            cpu: used / TIMES as u32,
        };
        let all: Vec<String> = times.iter().map(|time| milliseconds(*time)).collect();
        eprintln!(
            "    {name:21}  median {} of {}; used {}",
            milliseconds(taken.wall),
            all.join(", "),
            milliseconds(taken.cpu)
        );
        results.push(taken);
    }
    let ratio = |of: fn(&Usage) -> Duration| {
        of(&results[0]).as_secs_f64() / of(&results[1]).as_secs_f64().max(f64::EPSILON)
    };
    Ok(format!(
        "{} beside {} of `cargo build --release`: {:.1} times, {:.1} in time used; {}",
        milliseconds(results[0].wall),
        milliseconds(results[1].wall),
        ratio(|taken| taken.wall),
        ratio(|taken| taken.cpu),
        profile.said
    ))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

fn timed(command: &mut Command) -> Result<Usage, String> {
    let stopwatch = Stopwatch::start();
    let status = command.status().map_err(|e| format!("it does not start: {e}"))?;
    match status.success() {
        true => Ok(stopwatch.read()),
        false => Err(format!("{command:?}: {status}")),
    }
}

/// The path of a binary of this workspace.
fn built(name: &str, profile: Profile) -> PathBuf {
    crate::target().join(profile.folder).join(name)
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

/// Changes the ifunc: cargo would build an unchanged one only once.
fn change(folder: &Path, round: usize) -> Result<(), String> {
    let text = format!(
        "#![no_std]\nuse ifunc::prelude::*;\n\n/// Adds.\n#[ifunc]\npub fn add(delta: u64, counter: &mut u64) -> u64 {{\n    *counter += delta + {round};\n    *counter\n}}\n"
    );
    let path = folder.join("src/lib.rs");
    fs::write(&path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
}
