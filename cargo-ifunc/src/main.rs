//! `cargo ifunc`: build, check, test, inspect and run injected functions, and start projects of them.
//!
//! The command is thin: `ifunc-build` builds, `ifunc-abi` reads images, `ifunc-rt` lives in the programs that `run`
//! starts, and asks a target for `top`. One file per subcommand lies in [`commands`].

mod cli;
mod commands;
mod error;
mod images;
mod progress;
mod shell;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::error::Failure;
use crate::shell::Shell;

fn main() -> ExitCode {
    // Cargo starts a plugin as `cargo-ifunc ifunc …`; by hand it is `cargo-ifunc …`. Both are meant.
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
        Command::Expand(args) => commands::expand::run(&args, &mut shell),
        Command::Run(args) => commands::run::run(&args, &mut shell),
        Command::Top(args) => commands::top::run(&args, &mut shell),
        Command::New(args) => commands::new::run(&args, &mut shell),
        Command::Doctor(args) => commands::doctor::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Exit(code)) => ExitCode::from(code),
        // `cargo ifunc inspect … | head`: whoever closed the pipe has seen enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            shell.error(&failure);
            ExitCode::from(failure.code())
        }
    }
}
