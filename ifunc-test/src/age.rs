//! Whether an image is older than the sources of the tested package.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of files and folders to visit.
const MAX_LOOKED_AT: usize = 2000;

/// The most recently changed source, if it is newer than the library. Does nothing if `cargo ifunc test` built the
/// images: they are up to date then.
pub(crate) fn newer_source(library: &Path) -> Option<PathBuf> {
    if std::env::var_os("IFUNC_LIB_DIR").is_some() {
        return None;
    }
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let (changed, path) = newest(&[package.join("src"), package.join("c")])?;
    let built = fs::metadata(library).ok()?.modified().ok()?;
    (changed > built).then_some(path)
}

/// The most recently changed source below these folders.
pub(crate) fn newest(folders: &[PathBuf]) -> Option<(SystemTime, PathBuf)> {
    let mut open = folders.to_vec();
    let mut looked_at = 0;
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return newest;
            }
            let path = entry.path();
            // Metadata of the entry itself: links are not followed, so there are no cycles.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|e| e == "rs" || e == "c" || e == "h")
                && let Ok(changed) = about.modified()
                && newest.as_ref().is_none_or(|(known, _)| changed > *known)
            {
                newest = Some((changed, path));
            }
        }
    }
    newest
}
