//! `cargo xtask build-time`: how long the build of a trivial ifunc takes after its dependencies are built, beside
//! `cargo build --release` of the same crate in the same run. It is printed and never judged. Beside the time that
//! passed stands the time that all processes used: on a busy machine that is the one to compare.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{cargo, status};
use crate::steps::Steps;

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

/// What a build took.
#[derive(Clone, Copy)]
struct Taken {
    passed: Duration,
    /// By all processes, to ten milliseconds: means over several builds say more.
    used: Duration,
}

/// Measures both, with the command as the checkout's alias builds it, which is there after the tests.
pub(crate) fn run(steps: &mut Steps) {
    steps.step("build time of a trivial ifunc", || measure(DEV));
}

/// Measures both, with the command as users install it, which takes minutes to be compiled.
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
        // The dependencies, and the crate once.
        change(&folder, 0)?;
        timed(&mut command)?;
        let mut times = Vec::new();
        let mut used = Duration::ZERO;
        for round in 1..=TIMES {
            change(&folder, round)?;
            let taken = timed(&mut command)?;
            times.push(taken.passed);
            used += taken.used;
        }
        times.sort();
        let taken = Taken {
            passed: times[TIMES / 2],
            used: used / TIMES as u32,
        };
        let all: Vec<String> = times.iter().map(|time| milliseconds(*time)).collect();
        eprintln!(
            "    {name:21}  median {} of {}; used {}",
            milliseconds(taken.passed),
            all.join(", "),
            milliseconds(taken.used)
        );
        results.push(taken);
    }
    let ratio = |of: fn(&Taken) -> Duration| {
        of(&results[0]).as_secs_f64() / of(&results[1]).as_secs_f64().max(f64::EPSILON)
    };
    Ok(format!(
        "{} beside {} of `cargo build --release`: {:.1} times, {:.1} in time used; {}",
        milliseconds(results[0].passed),
        milliseconds(results[1].passed),
        ratio(|taken| taken.passed),
        ratio(|taken| taken.used),
        profile.said
    ))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

fn timed(command: &mut Command) -> Result<Taken, String> {
    let (started, before) = (Instant::now(), used_by_children()?);
    let status = command.status().map_err(|e| format!("it does not start: {e}"))?;
    match status.success() {
        true => Ok(Taken {
            passed: started.elapsed(),
            used: used_by_children()?.saturating_sub(before),
        }),
        false => Err(format!("{command:?}: {status}")),
    }
}

/// Processor time of all processes that this one started and that have ended: `cutime` and `cstime` of proc(5), in
/// hundredths of a second on every Linux.
fn used_by_children() -> Result<Duration, String> {
    let stat =
        fs::read_to_string("/proc/self/stat").map_err(|e| format!("cannot read /proc/self/stat: {e}"))?;
    // The name, in parentheses, may have blanks; the state behind it is field 3.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields
        .skip(16 - 3)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    match ticks[..] {
        [user, system] => Ok(Duration::from_millis((user + system) * 10)),
        _ => Err("/proc/self/stat does not have the fields of proc(5)".into()),
    }
}

/// Where a binary of this workspace lies.
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

/// Another ifunc every time: what did not change would not be made again.
fn change(folder: &Path, round: usize) -> Result<(), String> {
    let text = format!(
        "#![no_std]\nuse ifunc::prelude::*;\n\n/// Adds.\n#[ifunc]\npub fn add(delta: u64, counter: &mut u64) -> u64 {{\n    *counter += delta + {round};\n    *counter\n}}\n"
    );
    let path = folder.join("src/lib.rs");
    fs::write(&path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
}
