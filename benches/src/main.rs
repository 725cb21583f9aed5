//! Measures the runtime beside what a user would pick instead, both in one run, on two cores. `cargo xtask bench` builds and
//! starts it.
//!
//! Data flows one way: a [figure](figures) starts [programs](program) and lets [slots](slots) of ours and of a peer's take
//! turns; what comes of it are [rows](row).
//!
//! * `figures`: what is measured, one file per figure
//! * `roles`: what the programs do that are measured: ours, and the peers
//! * `program`: a role in a process of its own, on a core of its own
//! * `slots`: two sides in turn, medians and ratios
//! * `plan`: how much of it

mod cores;
mod figures;
mod plan;
mod program;
mod roles;
mod row;
mod slots;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use cores::Cores;
use figures::FIGURES;
use plan::Plan;
use row::Row;

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
    /// Write the rows to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => run(&options),
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

/// What a figure has at hand.
struct Bench {
    plan: Plan,
    cores: Cores,
    rows: Vec<Row>,
}

fn run(options: &Run) -> Result<()> {
    for name in &options.only {
        anyhow::ensure!(
            FIGURES.iter().any(|figure| figure.id == name),
            "there is no figure `{name}`; help: {}",
            FIGURES
                .iter()
                .map(|figure| figure.id)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let mut bench = Bench {
        plan: if options.quick { Plan::QUICK } else { Plan::FULL },
        cores: Cores::choose()?,
        rows: Vec::new(),
    };
    for figure in FIGURES {
        if options.only.is_empty() || options.only.iter().any(|name| name == figure.id) {
            eprintln!("==> {}: {}", figure.id, figure.title);
            (figure.run)(&mut bench)?;
        }
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&bench.rows)?)?;
    }
    Ok(())
}
