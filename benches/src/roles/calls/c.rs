//! Calls of an ifunc by a program in C, and its target in C: what an application that uses `ifunc_rt.h` has.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::program::Starter;

/// Names the program to both roles.
const PROGRAM: &str = "BENCH_PROGRAM";
/// Both sides in C.
const SOURCE: &str = include_str!("calls.c");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ifunc-capi/include");

/// The compiled program, in a temporary folder.
pub(crate) struct Compiled(TempDir);

impl Compiled {
    /// Compiles the program, and links it with the shared library as an application would.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("creating a folder for a program in C")?;
        let library = library()?;
        for name in ["libifunc_rt.so", "libifunc_rt.so.0"] {
            std::os::unix::fs::symlink(&library, folder.path().join(name))?;
        }
        let source = folder.path().join("calls.c");
        std::fs::write(&source, SOURCE)?;
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Werror",
            "-pthread",
            "-I",
            HEADERS,
            "-o",
        ])
        .arg(folder.path().join("calls"))
        .arg(&source)
        .arg("-L")
        .arg(folder.path())
        .arg("-lifunc_rt")
        .arg(format!("-Wl,-rpath,{}", folder.path().display()));
        let status = cc
            .stdin(Stdio::null())
            .status()
            .context("starting the C compiler `cc`; help: set $CC to another one")?;
        ensure!(status.success(), "the C compiler: {status}");
        Ok(Self(folder))
    }

    /// The variable by which roles find it.
    pub(crate) fn variable(&self) -> Result<(&'static str, String)> {
        let path = self.0.path().join("calls");
        Ok((
            PROGRAM,
            path.into_os_string()
                .into_string()
                .map_err(|path| anyhow::anyhow!("{path:?}"))?,
        ))
    }
}

/// The shared library of the C interface, which cargo has built for this program's profile.
fn library() -> Result<PathBuf> {
    let runner = std::env::current_exe()?;
    let folder = runner.parent().unwrap_or(Path::new("."));
    let library = folder.join("deps/libifunc_capi.so");
    ensure!(library.exists(), "there is no {}", library.display());
    Ok(library)
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    become_program(starter, "source")
}

pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    become_program(starter, "target")
}

/// Replaces this process, which is pinned and ends with its starter; the program keeps both.
fn become_program(starter: Starter, side: &str) -> Result<()> {
    let program = std::env::var_os(PROGRAM).context(PROGRAM)?;
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    drop(starter);
    let error = Command::new(program).args([side, &address]).exec();
    Err(error).context("starting the program in C")
}
