//! The project's own commands: `cargo xtask help` lists them. Nothing but the standard library, so that it is built in
//! a second or two.

mod again;
mod bench;
mod beside;
mod blocks;
mod build_time;
mod child;
mod corpus;
mod counts;
mod debian;
mod examples;
mod faults;
mod instructions;
mod launcher;
mod lint;
mod loom;
mod miri;
mod new_projects;
mod package;
mod plan;
mod process;
mod programs;
mod readme;
mod soak;
mod steps;
mod text_search;
mod transports;
mod two_hosts;
mod ucx_bindings;
mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plan::Tier;
use steps::Steps;

const HELP: &str = "\
cargo xtask COMMAND

  test [--list] [--only PART]...
            what runs with every commit: install what the tests need, formatting, clippy, documentation, tests, examples, README
  nightly [--list] [--only PART]...
            all of that and everything else: every test, both corpora, soak, faults, two hosts, loom and packages in full
  test --smallest
            all tests with 2 credits and the smallest ring, those between processes over every transport
  needs     install what the tests need
  lint      formatting, clippy and the documentation, warnings denied
  package   pack what is published, and build what was packed by itself
  readme [--here]
            compile README.md's rust blocks, run its sh blocks in a fresh clone; --here: in this checkout, which is one
  corpus [--full]
            send what compilers make of many sources to another process, and compare; --full: with every setting
  soak [--quick] [--messages N] [--transport LIST] [--part LIST] [--rounds N] [--visits N] [--seed N]
            messages by the million, sources that come, go and are killed, sleep and wake-ups, idleness: each counted; see
            docs/testing.md. Lists are of shm,ucx and of idle,wakes,many,messages; --quick: half a minute of it
  faults [--quick] [--only CELL]...
            kill, stop and restart sources and targets in every state of their connection, on every transport; --quick: less of
            it, and shorter stops; --only: the cells whose names begin so (shm/target/kill/mid-frame; `*` is any part)
  two-hosts [--quick | --only PART]
            the examples, tests and numbered messages between two network namespaces, over good ways and bad ones; --only: what
            has PART in its name, such as `ucx, the link`
  bench [--quick] [--only FIGURE]... [--json FILE]
            measure the runtime beside what a user would pick instead, both in one run on two cores; --quick: whether it works;
            --json: the rows, and beside them as CSV. Without it a whole run leaves them where --render reads
  bench --render [FILE]
            make docs/performance.md and its plots from what the last whole run has left, or from FILE, which is kept instead
  build-time [--release]
            build a trivial ifunc, beside `cargo build --release` of the same crate; --release: with the command as it is installed
  miri      the tests that Miri can run, under Miri
  loom      the models of what threads and processes share, in every order of their steps
  instructions
            count those that a message of 8 bytes takes over shm, and compare them with their budget
  ucx-bindings [--check]
            make (compare) ucx-sys/src/bindings from the headers of UCX 1.13; needs libclang
  help      this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Those that have options of their own, and end with their program's last line.
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("test", [only])) if only == "--smallest" => {}
        Some(("test", options)) => return plan::command(Tier::Commit, options),
        Some(("nightly", options)) => return plan::command(Tier::Nightly, options),
        Some(("soak", options)) => return soak::command(options),
        Some(("two-hosts", options)) => return two_hosts::command(options),
        Some(("faults", options)) => return faults::command(options),
        Some(("bench", options)) => return bench::command(options),
        _ => {}
    }
    let run: &[fn(&mut Steps)] = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test", "--smallest"] => &[debian::needs, again::smallest],
        ["needs"] => &[debian::needs],
        ["lint"] => &[lint::run],
        ["package"] => &[package::run],
        ["readme"] => &[readme::run],
        ["readme", "--here"] => &[readme::here],
        ["corpus"] => &[corpus::run],
        ["corpus", "--full"] => &[corpus::full],
        ["build-time"] => &[build_time::run],
        ["build-time", "--release"] => &[build_time::release],
        ["miri"] => &[miri::run],
        ["loom"] => &[loom::run],
        ["instructions"] => &[instructions::run],
        ["ucx-bindings"] => &[ucx_bindings::write],
        ["ucx-bindings", "--check"] => &[ucx_bindings::check],
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [] => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
        _ => {
            eprint!("error: `cargo xtask {}` is no command\n\n{HELP}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    let mut steps = Steps::new(Tier::Commit);
    for part in run {
        part(&mut steps);
    }
    steps.summary()
}

/// The checkout.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Cargo's target directory.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A folder for what these commands make, in cargo's target directory.
fn scratch() -> PathBuf {
    target().join("xtask")
}
