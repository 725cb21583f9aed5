//! Measures the runtime beside what a user would pick instead, both in one run, on two cores. `cargo xtask bench` builds and
//! starts it.
//!
//! Data flows one way: a [figure](figures) starts [programs](program) and lets [slots] of ours and of a peer's take
//! turns; what comes of it are [rows](row), of which [reports](report) are made.
//!
//! * `figures`: what is measured, one file per figure
//! * `roles`: what the programs do that are measured: ours, and the peers
//! * `program`: a role in a process of its own, on a core of its own
//! * `pair`: two programs that send each other messages
//! * `asked`: one that does what it is asked to
//! * `images`, `c`: the code that travels, ours and the peers'
//! * `irregular`: one program that works on a table, and several that each have a part of it
//! * `slots`: two sides in turn, medians and ratios
//! * `plan`: how much of it
//! * `bench`: a run, with its `results` so far, its `status` and the `machine` that it is on
//! * `report`: tables, CSV, and the page with its plots

mod bench;
mod c;
mod cores;
mod figures;
mod images;
mod irregular;
mod machine;
mod pair;
mod plan;
mod program;
mod report;
mod results;
mod roles;
mod row;
mod slot_program;
mod slots;
mod status;
mod ticks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::Bench;

#[derive(Parser)]
#[command(
    name = "ifunc-bench",
    about = "Measures the runtime beside what a user would pick instead"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure
    Run(Run),
    /// Make the page and its plots from results
    Render {
        /// Take these results for the page's; without it, those that it has
        results: Option<PathBuf>,
        /// The folder of the page
        #[arg(long, value_name = "FOLDER", default_value = "docs")]
        docs: PathBuf,
    },
    /// Be one of the programs that are measured
    #[command(hide = true)]
    Role {
        /// Which one.
        name: String,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Less of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// These figures alone
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// Write the rows to this file, and beside it as comma-separated values, with `.csv` for its extension
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the rows to this file if all figures could be measured; what `render` reads. Not the quick ones or a few
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
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
