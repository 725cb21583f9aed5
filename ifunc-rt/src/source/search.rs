//! Search path of ifunc libraries.

use std::path::{Path, PathBuf};

use super::error::LibraryError;
use super::workspace;

/// The library of an ifunc, from the first of these that has it: the folders of `IFUNC_LIB_DIR` and of `UCX_IFUNC_LIB_DIR`, separated by
/// colons; the executable's folder; `ifunc/release` of the target directory that holds the executable; and `target/ifunc/release` of the
/// workspace around the working directory.
///
/// That workspace is the one that cargo would take: the nearest manifest with a `[workspace]` that does not exclude the package. So a
/// workspace inside of another one uses its own libraries.
///
/// [`Source::register`](crate::Source::register) and [`Source::load`](crate::Source::load) use it.
///
/// ```no_run
/// let library = ifunc_rt::find_library("add")?;
/// println!("{} bytes", std::fs::metadata(&library)?.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// No folder has the library, or the name is none of an ifunc.
pub fn find_library(name: &str) -> Result<PathBuf, LibraryError> {
    if !ifunc_abi::name::is_valid(name) {
        return Err(LibraryError::Name(name.to_owned()));
    }
    let file = format!("{name}.so");
    let mut searched = Vec::new();
    for folder in folders() {
        let path = folder.join(&file);
        if path.is_file() {
            return Ok(path);
        }
        searched.push(format!("`{}`", folder.display()));
    }
    Err(LibraryError::NotFound {
        name: name.to_owned(),
        searched,
    })
}

/// The folders of the search path.
pub(crate) fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["IFUNC_LIB_DIR", "UCX_IFUNC_LIB_DIR"] {
        if let Some(value) = std::env::var_os(variable) {
            folders.extend(std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()));
        }
    }
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent);
    folders.extend(beside.map(Path::to_owned));
    // An executable built by cargo lies in `TARGET/release` or `TARGET/release/examples`.
    folders.extend(beside.and_then(|folder| {
        folder
            .ancestors()
            .take(4)
            .map(|target| target.join("ifunc/release"))
            .find(|built| built.is_dir())
    }));
    if let Ok(here) = std::env::current_dir() {
        let root = workspace::root_around(&here).unwrap_or(here);
        folders.push(root.join("target/ifunc/release"));
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}
