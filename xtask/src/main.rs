//! The project's own commands: `cargo xtask help` lists them. It has no dependencies, so that
//! it is built in seconds.

mod aarch64;
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
mod help;
mod hostile;
mod hosts;
mod ifuncd;
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
mod optimised;
mod package;
mod plan;
mod predecessors;
mod process;
mod programs;
mod readme;
mod share;
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

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, "--help" | "-h"] = args.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && let Some(help) = help::of(command)
    {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
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
        Some(("aarch64", options)) => return aarch64::command(options),
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
            print!("{}", help::ALL);
            return ExitCode::SUCCESS;
        }
        [] => {
            eprint!("{}", help::ALL);
            return ExitCode::from(2);
        }
        _ => {
            eprint!(
                "error: `cargo xtask {}` is not a command\n\n{}",
                args.join(" "),
                help::ALL
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
