//! `cargo xtask soak`: what a runtime must stand for hours, in minutes. `docs/testing.md` says what each part proves.
//!
//! One program in several roles: the [`driver`] starts itself as target, as sources and as the bare UCX that the
//! `ucx` transport is compared with, and looks at them from outside.

mod driver;
mod ledger;
mod roles;

/// The hash that the ifuncs keep: the same source text.
#[path = "../../../ifuncs/src/soak/hash.rs"]
mod hash;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("role") => roles::run(&args.collect::<Vec<_>>()),
        first => {
            let args: Vec<String> = first.map(str::to_owned).into_iter().chain(args).collect();
            return driver::run(&args);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The driver reads this; a role's standard error is its log.
            println!("wrong: {error}");
            ExitCode::FAILURE
        }
    }
}
