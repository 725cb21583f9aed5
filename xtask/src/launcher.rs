//! The example that a launcher starts, started by Open MPI's.

use std::process::Command;

use crate::debian;
use crate::steps::{Steps, cargo, lines, output};
use crate::test::transports;

/// How many processes: more than there are cores, on most machines that run this.
const RANKS: &str = "4";

/// Every process calls every other, over each transport that crosses between processes.
pub(crate) fn run(steps: &mut Steps) {
    if !debian::exists("mpirun") {
        return;
    }
    for &transport in transports().iter().filter(|name| **name != "loopback") {
        steps.step(
            &format!("all to all, started by mpirun, over {transport}"),
            || {
                output(&mut cargo([
                    "build",
                    "--quiet",
                    "--locked",
                    "--package",
                    "ifunc-rt",
                    "--example",
                    "launcher",
                ]))?;
                let mut build = cargo([
                    "run",
                    "--quiet",
                    "--locked",
                    "--package",
                    "cargo-ifunc",
                    "--",
                    "ifunc",
                    "build",
                ]);
                output(build.args(["--quiet", "--package", "example-01-hello-ifuncs"]))?;
                let target = crate::scratch();
                let target = target.parent().ok_or("no target directory")?;
                let meeting = crate::scratch().join("meeting");
                std::fs::create_dir_all(&meeting)
                    .map_err(|e| format!("cannot create `{}`: {e}", meeting.display()))?;
                let mut mpirun = Command::new("mpirun");
                // Root is who runs in containers.
                mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", RANKS]);
                mpirun.arg(target.join("debug/examples/launcher"));
                mpirun.env("IFUNC_RENDEZVOUS", &meeting);
                mpirun.env("IFUNC_LIB_DIR", target.join("ifunc/release"));
                mpirun.env("IFUNC_TRANSPORT", transport);
                mpirun.stdin(std::process::Stdio::null());
                let mut well = 0;
                lines(&mut mpirun, |line| {
                    well += u32::from(line.contains("as it must be"))
                })?;
                let left = std::fs::read_dir(&meeting).map_or(0, Iterator::count);
                match (well.to_string() == RANKS, left) {
                    (true, 0) => Ok(format!("{RANKS} processes, nothing left behind")),
                    (true, left) => Err(format!("{left} entries are left in `{}`", meeting.display())),
                    (false, _) => Err(format!("{well} of {RANKS} processes said that all was well")),
                }
            },
        );
    }
}
