//! The examples whose programs are written in C: built as their READMEs say, against an installed prefix.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::hosts::Running;
use crate::process::{ifunc, output, status};
use crate::steps::Steps;
use crate::{debian, installed};

const ROD: &str = "08-c-application";
const MPI: &str = "09-mpi";
/// More than CI has cores.
const RANKS: &str = "4";

/// Runs them.
pub(super) fn run(steps: &mut Steps) {
    if !debian::is_debian() {
        return;
    }
    let mut prefix = PathBuf::new();
    let built = steps.step("the examples in C, built", || {
        prefix = installed::prefix()?;
        status(&mut ifunc(&[
            "build",
            "--quiet",
            "--package",
            "example-08-c-application-ifuncs",
        ])?)?;
        status(&mut ifunc(&[
            "build",
            "--quiet",
            "examples/09-mpi/ifuncs/tally_key.c",
            "examples/09-mpi/ifuncs/tour_top.c",
        ])?)?;
        make(ROD, &prefix)?;
        make(MPI, &prefix)?;
        Ok(String::new())
    });
    if !built {
        return;
    }
    steps.step(&format!("{ROD} on its own UCX worker"), || rod(&prefix));
    for transport in ["shm", "ucx"] {
        steps.step(&format!("{MPI} over {transport}"), || mpi(&prefix, transport));
    }
}

/// Where an example's program is built.
fn folder(example: &str) -> PathBuf {
    crate::scratch().join(example)
}

fn make(example: &str, prefix: &Path) -> Result<(), String> {
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(crate::root().join("examples").join(example))
        .arg(format!("PREFIX={}", absolute(prefix)?.display()))
        .arg(format!("BUILD={}", absolute(&folder(example))?.display()))
        .arg("CFLAGS=-O2 -g -Wall -Wextra -Wpedantic -Werror")
        .stdin(Stdio::null());
    status(&mut make)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("`{}`: {e}", path.display()))
}

/// A program with what finds its libraries and ifuncs.
fn command(program: &Path, prefix: &Path) -> Command {
    // A program that hangs ends.
    let mut command = Command::new("timeout");
    command
        .arg("300")
        .arg(program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("IFUNC_LIB_DIR", crate::target().join("ifunc/release"))
        .stdin(Stdio::null());
    command
}

/// Two processes that meet in a folder.
fn rod(prefix: &Path) -> Result<String, String> {
    let program = folder(ROD).join("rod");
    let meeting = folder(ROD).join("meeting");
    let _ = fs::remove_dir_all(&meeting);
    fs::create_dir_all(&meeting).map_err(|e| format!("cannot create `{}`: {e}", meeting.display()))?;
    let mut other = Running(
        command(&program, prefix)
            .arg("1")
            .arg(&meeting)
            .spawn()
            .map_err(|e| format!("`{}` does not start: {e}", program.display()))?,
    );
    let said = output(command(&program, prefix).arg("0").arg(&meeting))?;
    let ended = other.0.wait().map_err(|e| e.to_string())?;
    match ended.success() {
        true => checked(&said),
        false => Err(format!("process 1: {ended}")),
    }
}

fn mpi(prefix: &Path, transport: &str) -> Result<String, String> {
    let mut mpirun = command(Path::new("mpirun"), prefix);
    // In containers the tests run as root.
    mpirun
        .args(["--allow-run-as-root", "--oversubscribe", "-n", RANKS])
        .arg(folder(MPI).join("count"))
        .args([transport, "20000"]);
    checked(&output(&mut mpirun)?)
}

/// The line that says what was compared with a sequential computation.
fn checked(said: &str) -> Result<String, String> {
    let line = said.lines().find_map(|line| line.strip_prefix("checked: "));
    line.map(str::to_owned)
        .ok_or_else(|| "it did not say what it checked".into())
}
