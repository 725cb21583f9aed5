//! Whether an image is older than the sources of the tested package.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of files and folders to visit.
const MAX_LOOKED_AT: usize = 2000;

/// The most recently changed source, if it is newer than the library. Does nothing if `cargo ifunc test` built the
/// images: they are up to date then.
pub(super) fn newer_source(library: &Path) -> Option<PathBuf> {
    if std::env::var_os("IFUNC_LIB_DIR").is_some() {
        return None;
    }
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let (changed, path) = newest(&[package.join("src"), package.join("c")])?;
    let built = fs::metadata(library).ok()?.modified().ok()?;
    (changed > built).then_some(path)
}

/// The most recently changed source below these folders.
fn newest(folders: &[PathBuf]) -> Option<(SystemTime, PathBuf)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_source_is_found() {
        let folder = std::env::temp_dir().join(format!("ifunc-age-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for (file, seconds) in [("a.rs", 3), ("deep/b.c", 5), ("notes.txt", 9)] {
            let file = fs::File::create(folder.join(file)).unwrap();
            file.set_modified(long_ago + std::time::Duration::from_secs(seconds))
                .unwrap();
        }
        let found = newest(&[folder.join("not there"), folder.clone()]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            found,
            Some((
                long_ago + std::time::Duration::from_secs(5),
                folder.join("deep/b.c")
            ))
        );
    }
}
