//! Compares the runtime with its alternatives, both in one run on two cores. `cargo xtask bench` builds and
//! starts it.
//!
//! Data flows in one direction: a [figure](figures) starts [programs](program) and lets [slots] of ours and
//! of a peer alternate. The results are [rows](row), from which the [reports](report) are made.
//!
//! * `figures`: the measurements, one file per figure
//! * `roles`: the measured programs, ours and the peers'
//! * `program`: a role in a process of its own, on a core of its own
//! * `pair`: two programs that exchange messages
//! * `slot_program`: a program that runs slots on request
//! * `images`, `c`: the code that travels, ours and the peers'
//! * `irregular`: a worker program and several with a part of a table
//! * `kv`: clients of a key-value server
//! * `scale`: many sources of one target
//! * `slots`: alternating sides, medians and ratios
//! * `plan`: repetitions and durations
//! * `bench`: a run, with its `results`, its `status` and the `machine`
//! * `processor`: processor time, and bytes on the loopback device
//! * `report`: tables, CSV, and the page with its plots

mod bench;
mod c;
mod cores;
mod figures;
mod images;
mod irregular;
mod kv;
mod machine;
mod pair;
mod plan;
mod processor;
mod program;
mod report;
mod results;
mod roles;
mod row;
mod scale;
mod slot_program;
mod slots;
mod status;
mod ticks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::Bench;

#[derive(Parser)]
#[command(name = "ifunc-bench", about = "Compares the runtime with its alternatives")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the measurements
    Run(Run),
    /// Render the page and its plots from results
    Render {
        /// Replace the page's results by these first
        results: Option<PathBuf>,
        /// Folder of the page
        #[arg(long, value_name = "FOLDER", default_value = "docs")]
        docs: PathBuf,
    },
    /// Run one of the measured programs
    #[command(hide = true)]
    Role {
        /// Role of the program
        name: String,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Run briefly: tests that everything works, without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Measure this figure only (repeatable)
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// Write the rows to this file as JSON, and next to it as CSV
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the rows to this file after a complete run; after another, add the figures that it lacks. `render` reads it
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    ifunc_rt::run_if_started_by_target();
    let result = match Cli::parse().command {
        Command::Run(options) => bench::run(&options),
        Command::Render { results, docs } => report::page::render(results.as_deref(), &docs),
        Command::Role { name } => roles::run(&name),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
