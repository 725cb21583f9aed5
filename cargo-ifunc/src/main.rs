//! `cargo ifunc`: builds, checks, tests, inspects and runs injected functions, and creates projects of them.
//!
//! This crate is a thin command line: `ifunc-build` builds, `ifunc-abi` parses images, and `ifunc-rt` queries
//! a target for `top`. Each subcommand has a file in [`commands`].

mod cli;
mod commands;
mod error;
mod images;
mod peer;
mod platforms;
mod progress;
mod shell;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::error::Failure;
use crate::shell::Shell;

fn main() -> ExitCode {
    // `doctor` tries whether runner processes start, with this program.
    ifunc_rt::run_if_started_by_target();
    // Cargo starts a plugin as `cargo-ifunc ifunc …`; a user may start it as `cargo-ifunc …`.
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|arg| arg == "ifunc") {
        args.remove(1);
    }
    shell::color_from_environment();
    let cli = Cli::parse_from(args);
    let mut shell = Shell::new(&cli.global);
    let done = match cli.command {
        Command::Build(args) => commands::build::run(&args, &mut shell),
        Command::Check(args) => commands::check::run(&args, &mut shell),
        Command::Test(args) => commands::test::run(&args, &mut shell),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Keygen(args) => commands::keygen::run(&args, &mut shell),
        Command::Sign(args) => commands::sign::run(&args, &mut shell),
        Command::Verify(args) => commands::verify::run(&args, &mut shell),
        Command::Expand(args) => commands::expand::run(&args, &mut shell),
        Command::Run(args) => commands::run::run(&args, &mut shell),
        Command::Call(args) => commands::call::run(&args, &mut shell),
        Command::Top(args) => commands::top::run(&args, &mut shell),
        Command::New(args) => commands::new::run(&args, &mut shell),
        Command::Clean(args) => commands::clean::run(&args, &mut shell),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Man(args) => commands::man::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Exit(code)) => ExitCode::from(code),
        // In `cargo ifunc inspect … | head`, the reader closes the pipe early; that is not an error.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            shell.error(&failure);
            ExitCode::from(failure.code())
        }
    }
}
