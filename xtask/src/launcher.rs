//! Runs `ifunc-rt/examples/launcher` with Open MPI's launcher.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::debian;
use crate::plan::Tier;
use crate::process::{WHOLE, cargo, ifunc, lines, status};
use crate::steps::Steps;
use crate::transports::between_processes;

/// The number of processes: more than CI has cores.
const RANKS: &str = "4";

/// Every process calls every other, over each transport that crosses between processes.
pub(crate) fn run(steps: &mut Steps) {
    if !debian::exists("mpirun") {
        return;
    }
    let built = steps.step("the example that a launcher starts", || {
        let example = ["build", "--quiet", "--example", "launcher"];
        status(cargo(example).args(WHOLE))?;
        status(&mut ifunc(&[
            "build",
            "--quiet",
            "--package",
            "example-01-hello-ifuncs",
        ])?)?;
        Ok(String::new())
    });
    if built {
        for transport in between_processes(Tier::Commit) {
            let name = format!("all to all, started by mpirun, over {transport}");
            steps.step(&name, || all_to_all(transport));
        }
    }
}

fn all_to_all(transport: &str) -> Result<String, String> {
    let meeting = crate::scratch().join("meeting");
    std::fs::create_dir_all(&meeting).map_err(|e| format!("cannot create `{}`: {e}", meeting.display()))?;
    let mut well = 0;
    lines(&mut mpirun(transport, &meeting), |line| {
        well += u32::from(line.contains("as it must be"))
    })?;
    let left = std::fs::read_dir(&meeting).map_or(0, Iterator::count);
    match (well.to_string() == RANKS, left) {
        (true, 0) => Ok(format!("{RANKS} processes, nothing left behind")),
        (true, left) => Err(format!("{left} entries are left in `{}`", meeting.display())),
        (false, _) => Err(format!("{well} of {RANKS} processes said that all was well")),
    }
}

fn mpirun(transport: &str, meeting: &Path) -> Command {
    let target = crate::target();
    let mut mpirun = Command::new("mpirun");
    // In containers the tests run as root.
    mpirun
        .args(["--allow-run-as-root", "--oversubscribe", "-n", RANKS])
        .arg(target.join("debug/examples/launcher"))
        .env("IFUNC_RENDEZVOUS", meeting)
        .env("IFUNC_LIB_DIR", target.join("ifunc/release"))
        .env("IFUNC_TRANSPORT", transport)
        .stdin(Stdio::null());
    mpirun
}
