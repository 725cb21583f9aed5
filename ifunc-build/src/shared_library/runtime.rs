//! The C runtime of Rust ifuncs, compiled once per compiler and kept, because compiling it takes longer than all other
//! steps for a library. In the copy for one ifunc its functions have that ifunc's names.

use std::path::{Path, PathBuf};

use ifunc_abi::symbols::{BOUND_SUFFIX, INIT_SUFFIX};

use super::edit::{Edits, edit};
use super::io;
use crate::c::Compiler;
use crate::{BuildError, Progress};

/// Its source text.
pub(super) const TEXT: &str = include_str!("runtime.c");
/// Its compiler flags. A library takes the functions that it needs.
const FLAGS: [&str; 6] = [
    "-c",
    "-O2",
    "-g0",
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
];
/// The symbol of the ifunc's name, to which the runtime refers.
pub(super) const NAME_SYMBOL: &str = "__ifunc_runtime_name";

/// For each function of the C interface: its suffix, the name of the runtime's function, and the runtime's name for
/// that of the objects.
const FUNCTIONS: [(&str, &str, &str); 2] = [
    (BOUND_SUFFIX, "__ifunc_runtime_bound", "__ifunc_inner_bound"),
    (INIT_SUFFIX, "__ifunc_runtime_init", "__ifunc_inner_init"),
];

/// New names for the definitions of `name` in the objects: those that the runtime calls.
pub(super) fn inner_names(name: &str) -> impl Iterator<Item = (String, String)> {
    FUNCTIONS
        .into_iter()
        .map(move |(suffix, _, inner)| (format!("{name}{suffix}"), inner.to_owned()))
}

/// The runtime of the ifunc `name`. `catches`: its functions of the C interface catch panics, and call those of [`inner_names`].
/// `folder` is that of the libraries; the object is kept beside it.
pub(super) fn object(
    name: &str,
    catches: bool,
    folder: &Path,
    compiler: &Compiler,
    verbose: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<u8>, BuildError> {
    let edits = Edits {
        rename: FUNCTIONS
            .into_iter()
            .filter(|_| catches)
            .map(|(suffix, runtime, _)| (runtime.to_owned(), format!("{name}{suffix}")))
            .collect(),
        ..Edits::default()
    };
    let kept = place(folder, compiler);
    // An unreadable object is compiled again.
    if let Some(object) = std::fs::read(&kept)
        .ok()
        .and_then(|kept| edit(&kept, &edits).ok())
    {
        return Ok(object);
    }
    let object = compile(&kept, compiler, verbose, progress)?;
    edit(&object, &edits).map_err(|e| {
        BuildError::Input(ifunc_link::InputError {
            name: kept.display().to_string(),
            reason: e.to_string(),
        })
    })
}

/// The path of the object for this text and this compiler.
fn place(folder: &Path, compiler: &Compiler) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    for part in [TEXT, &FLAGS.join(" "), &compiler.name(), compiler.version()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let file = format!("{}.o", &hasher.finalize().to_hex()[..32]);
    folder.parent().unwrap_or(folder).join("runtime").join(file)
}

/// Compiles the runtime and moves it into place atomically, for concurrent builds.
fn compile(
    kept: &Path,
    compiler: &Compiler,
    verbose: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<u8>, BuildError> {
    let folder = kept.parent().unwrap_or(kept);
    std::fs::create_dir_all(folder).map_err(io("create", folder))?;
    let work = tempfile::Builder::new()
        .prefix(".build-")
        .tempdir_in(folder)
        .map_err(io("create a directory in", folder))?;
    let source = work.path().join("runtime.c");
    std::fs::write(&source, TEXT).map_err(io("write", &source))?;
    let new = work.path().join("runtime.o");
    let mut command = compiler.command();
    command.args(FLAGS).arg("-o").arg(&new).arg(&source);
    if verbose {
        progress.command(&format!("{command:?}"));
    }
    let output = command.output().map_err(|e| compiler.spawn_error(e))?;
    if !output.status.success() {
        return Err(BuildError::CompileC {
            file: source,
            compiler: compiler.name(),
            stderr: String::from_utf8_lossy(&output.stderr).trim_end().into(),
        });
    }
    let object = std::fs::read(&new).map_err(io("read", &new))?;
    std::fs::rename(&new, kept).map_err(io("put in place", kept))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use ifunc_abi::symbols::RUNTIME_IMPORTS;

    /// Otherwise the loader refuses the library of an ifunc whose payload is encoded by code that refers to it.
    #[test]
    fn the_runtime_defines_what_every_target_provides() {
        for import in RUNTIME_IMPORTS {
            let defined = super::TEXT
                .lines()
                .any(|line| line.starts_with("HIDDEN ") && line.contains(&format!("{import}(")));
            assert!(defined, "`{import}` is not in `runtime.c`");
        }
    }
}
