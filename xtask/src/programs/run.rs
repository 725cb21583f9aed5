//! Runs test programs, several at a time: a line for each, and the whole output of one that failed.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Program;
use crate::child;
use crate::counts::{Counts, Tally};
use crate::plan::Tier;
use crate::tail::Tail;
use crate::usage::Usage;

/// A program that runs longer than this is killed: a hang must end, and must not look like a pass.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// The same, where it runs the tests of the nightly tier as well.
const NIGHTLY_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How the programs are run.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    /// Arguments of the test harness.
    pub(crate) args: &'a [&'a str],
    pub(crate) env: Vec<(&'a str, &'a str)>,
    /// Programs at a time.
    pub(crate) jobs: usize,
    /// The folder of what they print, below that of all tests. Programs that may run at the same time have their own.
    pub(crate) logs: &'a str,
    /// How long each may take.
    limit: Duration,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(args: &'a [&'a str]) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            args,
            env: Vec::new(),
            jobs: cores + 1,
            logs: "",
            limit: LIMIT,
        }
    }

    /// Nightly runs the tests that the commit tier ignores, too, and tries sixteen times as many inputs of each property.
    pub(crate) fn of_tier(tier: Tier) -> Self {
        let (args, cases, limit): (&[&str], _, _) = match tier {
            Tier::Commit => (&[], "64", LIMIT),
            Tier::Nightly => (&["--include-ignored"], "1024", NIGHTLY_LIMIT),
        };
        let mut runs = Self::new(args);
        runs.limit = limit;
        runs.env.push(("PROPTEST_CASES", cases));
        runs
    }
}

/// What came of a program.
#[derive(Debug)]
struct Outcome {
    tally: Tally,
    usage: Usage,
    result: Result<(), String>,
    log: PathBuf,
}

/// Runs all of them. Returns the note of the step: how many tests passed.
pub(crate) fn run(programs: &[Program], runs: &Runs<'_>) -> Result<String, String> {
    let logs = crate::scratch().join("logs").join(runs.logs);
    fs::create_dir_all(&logs).map_err(|e| format!("cannot create `{}`: {e}", logs.display()))?;
    let libraries = libraries()?;
    let next = AtomicUsize::new(0);
    let (sender, finished) = channel();
    let work = |sender: Sender<(usize, Outcome)>| {
        while let Some((n, program)) = next_of(programs, &next) {
            let log = logs.join(format!("{}.log", program.source.replace('/', "-")));
            let outcome = run_one(program, runs, &libraries, log);
            if sender.send((n, outcome)).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..runs.jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        conclude(finished.iter().map(|(n, outcome)| {
            let program = &programs[n];
            print(program, &outcome);
            (program, outcome)
        }))
    })
}

fn next_of<'a>(programs: &'a [Program], next: &AtomicUsize) -> Option<(usize, &'a Program)> {
    let n = next.fetch_add(1, Ordering::Relaxed);
    Some((n, programs.get(n)?))
}

/// Where a test program finds the shared libraries that it is linked with: those of procedural macros link Rust's own.
fn libraries() -> Result<std::ffi::OsString, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("`rustc` does not start: {e}"))?;
    let debug = crate::target().join("debug");
    let mut folders = vec![
        debug.join("deps"),
        debug,
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()),
    ];
    folders.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    env::join_paths(folders).map_err(|e| e.to_string())
}

fn run_one(program: &Program, runs: &Runs<'_>, libraries: &std::ffi::OsStr, log: PathBuf) -> Outcome {
    let started = Instant::now();
    let (cpu, result) = match start(program, runs, libraries, &log) {
        Ok(child) => child::wait(child, Some(runs.limit)),
        Err(reason) => (Duration::ZERO, Err(reason)),
    };
    let mut tally = Tally::default();
    for line in fs::read(&log).unwrap_or_default().split(|&byte| byte == b'\n') {
        tally.read(&String::from_utf8_lossy(line));
    }
    let usage = Usage {
        wall: started.elapsed(),
        cpu,
    };
    Outcome {
        tally,
        usage,
        result,
        log,
    }
}

/// Starts it as `cargo test` does: in its package's folder, with what cargo tells tests of it.
fn start(
    program: &Program,
    runs: &Runs<'_>,
    libraries: &std::ffi::OsStr,
    log: &Path,
) -> Result<Child, String> {
    let mut command = Command::new(&program.executable);
    for (name, _) in env::vars_os() {
        // What cargo told this program of itself.
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
    }
    command
        .args(runs.args)
        .current_dir(&program.folder)
        .env("CARGO_PKG_NAME", &program.package)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("CARGO_MANIFEST_PATH", program.folder.join("Cargo.toml"))
        .env("LD_LIBRARY_PATH", libraries)
        // UCX writes its warnings to standard output otherwise.
        .env("UCX_LOG_FILE", "stderr")
        .envs(runs.env.iter().copied());
    child::start(&mut command, log)
}

/// Prints a line, and below it the output of a program that failed. The output of others is in the log: it is full of what tests
/// provoke.
fn print(program: &Program, outcome: &Outcome) {
    let Outcome {
        tally,
        usage,
        result,
        log,
    } = outcome;
    let Counts {
        passed,
        failed,
        ignored,
    } = tally.counts;
    let mark = if result.is_ok() { "ok    " } else { "FAILED" };
    let mut out = std::io::stdout().lock();
    // A closed standard output does not stop the tests.
    let _ = writeln!(
        out,
        "{mark}  {usage}  {passed:4} passed, {failed} failed, {ignored:2} ignored  {}",
        program.source
    );
    if let Err(reason) = result {
        let _ = out.write_all(&fs::read(log).unwrap_or_default());
        let _ = writeln!(out, "error: {}: {reason}", program.source);
    }
    let _ = out.flush();
}

/// The sum of all: a note, or which failed and what they say of it.
fn conclude<'a>(outcomes: impl Iterator<Item = (&'a Program, Outcome)>) -> Result<String, String> {
    let mut all = Tally::default();
    let (mut failed, mut output) = (Vec::new(), String::new());
    for (program, outcome) in outcomes {
        all.add(&outcome.tally);
        if let Err(reason) = outcome.result {
            let said = fs::read(&outcome.log).unwrap_or_default();
            let said = Tail::of_failures(&String::from_utf8_lossy(&said));
            output.push_str(&format!("\n  {}: {reason}{said}", program.source));
            failed.push(program.source.as_str());
        }
    }
    let note = all.note();
    match failed.is_empty() {
        true if all.counts.passed == 0 => Err("no test ran".into()),
        true => Ok(note),
        false => Err(format!("{} ({note}){output}", failed.join(", "))),
    }
}
