//! The project's own commands: `cargo xtask help` lists them. It has no dependencies, so that
//! it is built in seconds.

mod bench;
mod beside;
mod blocks;
mod build_time;
mod capi;
mod chase;
mod child;
mod corpus;
mod counts;
mod debian;
mod dropin;
mod examples;
mod faults;
mod fuzz;
mod hostile;
mod hosts;
mod install;
mod installed;
mod instructions;
mod launcher;
mod lint;
mod loom;
mod man;
mod miri;
mod mutants;
mod new_projects;
mod package;
mod plan;
mod predecessors;
mod process;
mod programs;
mod readme;
mod simulate;
mod soak;
mod steps;
mod tail;
mod text_search;
mod transports;
mod two_hosts;
mod ucx_bindings;
mod usage;
mod variants;
mod warm;

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
  needs     install the Debian packages that the tests need
  lint      formatting, clippy and the documentation, warnings denied
  package   pack the published crates, and build them from their packages
  readme [--here] [--only TEXT]
            compile the rust blocks of README.md, of the examples' README.md and of the book, run their other blocks in a fresh
            clone, and compare what they print; --here: in this checkout; --only: the pages with TEXT in their names
  corpus [--full]
            send the images of many sources to another process, and compare with direct calls; --full: with every setting
  simulate [--seeds N] [--seed S] [--steps N] [--json]
            drive connections over simulated links that reorder, delay and die, and check every step; --seed: one run, with
            the steps that a violation needs
  simulate --mutants
            put bugs into a copy of the connection, one at a time; the simulator must find each
  soak [--quick] [--messages N] [--transport LIST] [--part LIST] [--rounds N] [--visits N] [--seed N]
            millions of messages, sources that come, go and are killed, wake-ups, idle processes; see docs/testing.md.
            Lists are of shm,ucx,ucx-put and of idle,wakes,many,messages; --quick: half a minute of it
  hostile [--seconds N] [--transport LIST] [--seed N]
            attack a target over shm and tls for N seconds each (60): peers that rewrite shared memory, flood, lie, hold fragments
            open, garble records and connect by the thousand, beside an honest source, which must not notice
  faults [--quick] [--only CELL]...
            kill, stop and restart sources and targets in every state of their connection, on every transport; --quick: fewer
            cells, and shorter stops; --only: the cells whose names begin so (shm/target/kill/mid-frame; `*` is any part)
  two-hosts [--quick | --only PART]
            the examples, tests and numbered messages between two network namespaces, over links that drop, delay and block
            packets; --only: the runs with PART in their names, such as `ucx, the link`
  predecessors [--only TEXT]
            programs for the UCX ifunc interface of 2021 and 2022, in C and C++, over shared memory and between hosts made of
            namespaces; their pointer chase over 1, 2 and 4 servers
  chase [--servers LIST] [--delay LIST] [--depth D] [--entries LOG2] [--batch K] [--seconds S] [--modes MODES] [--spin MICROSECONDS]
            the pointer chase of example 04 over UCX's TCP, each server in a network namespace; LIST: numbers of servers (2,4);
            MODES: get,am,ifunc, or some of them. They take turns of 40 ms, and a ratio is the median of the turns. --spin: how long
            servers and source poll before they sleep; without it as the runtime does, and 0 where there are fewer processors than
            processes: all of them then run on one. --delay: also over networks that take so many microseconds (50,200) from host to
            host, beside one that takes none
  bench [--quick] [--only FIGURE]... [--json FILE]
            measure the runtime and its alternatives in one run on two cores; --quick: only check that it works; --json: write
            the rows there, and as CSV beside it. Without it a whole run writes them where --render reads them,
            and another adds the figures that are missing there
  bench --render [FILE]
            render docs/performance.md and its plots from the last whole run, or from FILE, which replaces it
  build-time [--release]
            build a trivial ifunc, beside `cargo build --release` of the same crate; --release: with the command as it is installed
  man [--to DIR]
            write the manual pages of `cargo ifunc` and of the C headers; without DIR to target/man
  fuzz [--quick] [--hours N | --seconds N] [--only TARGET]... [--json]
            run the fuzz targets of `fuzz/` with libFuzzer and AddressSanitizer, and print for each what it executed and which
            part of its code it reached; --hours: all targets together, --seconds: each, --quick: 10 seconds each. Needs a
            nightly toolchain
  fuzz --merge | --seeds
            replace the committed inputs by the fewest that reach as much as what was found; write the first inputs
  miri      the tests that Miri can run, under Miri
  mutants [--only AREA]... [--sample N] [--seed S] [--named TEXT]
            put bugs into ifunc-abi, ifunc-proto, ifunc-exec and the transports, one at a time, and print how many the tests find;
            AREA: one of ifunc-abi, ifunc-proto, ifunc-exec, transport; --sample: N mutants of each area, which the seed S (0)
            draws; --named: those with TEXT in their names. Needs cargo-mutants
  loom      the models of shared memory and locks, in every order of their steps that loom explores
  instructions
            count the instructions of a message of 8 bytes over shm, and compare them with their budget
  ucx-bindings [--check]
            generate (compare) ucx-sys/src/bindings from the headers of UCX 1.13; needs libclang
  install-ucp-ifunc --prefix DIR [--debug]
            build the UCX ifunc interface of the systems before this one, and install libucp_ifunc.so and .a, and the headers of its
            three variants, below DIR; --debug: the library as tests are built
  install-capi --prefix DIR [--debug]
            build the C interface of the runtime and install ifunc_rt.h, libifunc_rt.so and .a, ifunc.h, the files for pkg-config
            and CMake, and manual pages below DIR; --debug: the library as tests are built
  capi-header [--check]
            generate (compare) ifunc-capi/include/ifunc_rt.h from the sources of ifunc-capi
  help      this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // These commands parse their own options.
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("test", [only])) if only == "--smallest" => {}
        Some(("test", options)) => return plan::command(Tier::Commit, options),
        Some(("nightly", options)) => return plan::command(Tier::Nightly, options),
        Some(("simulate", options)) => return simulate::command(options),
        Some(("soak", options)) => return soak::command(options),
        Some(("two-hosts", options)) => return two_hosts::command(options),
        Some(("hostile", options)) => return hostile::command(options),
        Some(("fuzz", options)) => return fuzz::command(options),
        Some(("faults", options)) => return faults::command(options),
        Some(("chase", options)) => return chase::command(options),
        Some(("bench", options)) => return bench::command(options),
        Some(("predecessors", options)) => return predecessors::command(options),
        Some(("man", options)) => return man::command(options),
        Some(("mutants", options)) => return mutants::command(options),
        Some(("readme", options)) => return readme::command(options),
        Some(("install-ucp-ifunc", options)) => return dropin::command(options),
        Some(("install-capi", options)) => return capi::command(options),
        _ => {}
    }
    let run: &[fn(&mut Steps)] = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test", "--smallest"] => &[debian::needs, variants::smallest],
        ["needs"] => &[debian::needs],
        ["lint"] => &[lint::run],
        ["package"] => &[package::run],
        ["corpus"] => &[corpus::run],
        ["corpus", "--full"] => &[corpus::full],
        ["build-time"] => &[build_time::run],
        ["build-time", "--release"] => &[build_time::release],
        ["miri"] => &[miri::run],
        ["loom"] => &[loom::run],
        ["instructions"] => &[instructions::run],
        ["ucx-bindings"] => &[ucx_bindings::write],
        ["ucx-bindings", "--check"] => &[ucx_bindings::check],
        ["capi-header"] => &[capi::header],
        ["capi-header", "--check"] => &[capi::check_header],
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [] => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
        _ => {
            eprint!(
                "error: `cargo xtask {}` is not a command\n\n{HELP}",
                args.join(" ")
            );
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
