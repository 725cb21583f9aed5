//! Where ifunc libraries are searched for.
//!
//! [`Source::register`](crate::Source::register) and [`Source::load`](crate::Source::load) find the library of an ifunc in [`folders`].
//!
//! ```no_run
//! use ifunc_rt::library;
//!
//! let path = library::find("add", library::folders())?;
//! println!("{} bytes", std::fs::metadata(&path)?.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod workspace;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::LibraryError;

/// The library of an ifunc, `NAME.so`, from the first of these folders that has it. Later folders are not asked for.
///
/// # Errors
/// No folder has the library, or the name is none of an ifunc.
pub fn find(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf, LibraryError> {
    if !ifunc_abi::name::is_valid(name) {
        return Err(LibraryError::Name(name.to_owned()));
    }
    let file = format!("{name}.so");
    let mut searched = Vec::new();
    for folder in folders {
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

/// The folders in which a source of this process searches, in this order: [`environment_folders`]; the executable's folder;
/// `ifunc/release` of the target directory that holds the executable; and `target/ifunc/release` of the workspace around the working
/// directory.
///
/// That workspace is the one that cargo would take: the nearest manifest with a `[workspace]` that does not exclude the package. So a
/// workspace inside of another one uses its own libraries.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let mut folders = environment_folders();
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
    let mut seen = HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// The folders of `IFUNC_LIB_DIR` and of `UCX_IFUNC_LIB_DIR`, which separate them by colons.
#[must_use]
pub fn environment_folders() -> Vec<PathBuf> {
    let variables = ["IFUNC_LIB_DIR", "UCX_IFUNC_LIB_DIR"];
    let values = variables.into_iter().filter_map(std::env::var_os);
    values
        .flat_map(|value| std::env::split_paths(&value).collect::<Vec<_>>())
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}
