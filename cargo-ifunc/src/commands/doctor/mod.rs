//! `cargo ifunc doctor`: checks what this machine has and lacks, and prints the command that fixes each
//! problem.
//!
//! One file per area. Each check reads one thing from the machine; a separate function turns what it read
//! into a [`Finding`], so that tests need no particular machine.

mod environment;
mod finding;
mod kernel;
mod limits;
mod optional;
mod other_machine;
mod report;
mod toolchain;
mod ucx;

use std::io::Write;

use crate::cli::DoctorArgs;
use crate::error::Failure;
use finding::{Finding, Mark};

/// An area: its name and its checks.
type Area = (&'static str, fn() -> Vec<Finding>);

const AREAS: [Area; 7] = [
    ("toolchain", toolchain::checks),
    ("kernel", kernel::checks),
    ("limits", limits::checks),
    ("environment", environment::checks),
    ("optional", optional::checks),
    ("networks", ucx::checks),
    (other_machine::AREA, other_machine::checks),
];

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let areas: Vec<_> = AREAS.iter().map(|(name, checks)| (*name, checks())).collect();
    let lacks = areas
        .iter()
        .flat_map(|(_, findings)| findings)
        .any(|finding| finding.mark == Mark::Missing);
    if args.json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &report::json(&areas)).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        report::print(&areas, &mut anstream::stdout().lock())?;
    }
    match lacks {
        true => Err(Failure::Exit(1)),
        false => Ok(()),
    }
}
