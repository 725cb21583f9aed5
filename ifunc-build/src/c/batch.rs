//! The functions that run batches of C ifuncs: the builder writes them beside each `X_main`.

use std::fmt::Write as _;
use std::path::Path;

use ifunc_abi::symbols::{BATCH_PREFIX, MAIN_SUFFIX};
use ifunc_link::{Input, Role};

use super::compiler::Compiler;
use super::ifuncs::CIfunc;
use super::is_cxx;
use crate::shared_library::io;
use crate::{BuildError, COptions, Progress};

/// What the functions have in common. It needs no header, whatever folders the user's flags name. The layouts are those of
/// `ifunc_abi::context`.
const COMMON: &str = include_str!("batch.c");

/// Compiles the functions for the ifuncs of a file, with the flags of that file.
pub(super) fn compile(
    compiler: &Compiler,
    file: &Path,
    ifuncs: &[CIfunc],
    options: &COptions,
    progress: &mut dyn Progress,
) -> Result<Vec<u8>, BuildError> {
    if ifuncs.is_empty() {
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir().map_err(io("create a directory in", &std::env::temp_dir()))?;
    let extension = if is_cxx(file) { "cc" } else { "c" };
    let unit = folder.path().join(format!("batch.{extension}"));
    std::fs::write(&unit, text(ifuncs)).map_err(io("write", &unit))?;
    // No debug information: it would name a folder that is another one in the next build. No warnings: the author's flags may
    // ask for any, about code that is not the author's.
    let mut options = options.clone();
    options.cflags.extend(["-g0", "-w"].map(String::from));
    compiler.compile(&unit, &options, &mut Commands(progress))
}

/// Reports commands alone: the file exists for a moment.
struct Commands<'a>(&'a mut dyn Progress);

impl Progress for Commands<'_> {
    fn command(&mut self, line: &str) {
        self.0.command(line);
    }
}

fn text(ifuncs: &[CIfunc]) -> String {
    let mut text = COMMON.to_owned();
    for ifunc in ifuncs {
        let (name, status) = (&ifunc.name, u8::from(ifunc.returns_status));
        let _ = writeln!(
            text,
            "IFUNC_BATCH({name}{MAIN_SUFFIX}, {BATCH_PREFIX}{name}, {status})"
        );
    }
    text
}

/// The object of [`compile`], as an input of the linker. `is_own`: of the file whose images are linked.
pub(super) fn input(object: &[u8], is_own: bool) -> Input<'_> {
    Input {
        name: "batch.o",
        data: object,
        role: if is_own { Role::User } else { Role::Neighbour },
    }
}
