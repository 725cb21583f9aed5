//! A lock of a folder between processes, as cargo has one.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use crate::shared_library::io;
use crate::{BuildError, Progress};

/// Waits for the lock, for as long as it takes, and says so. Who holds it lets go when the file is dropped or the process
/// ends, however it ends.
pub(super) fn acquire(path: &Path, progress: &mut dyn Progress) -> Result<Option<File>, BuildError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(io("open", path))?;
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return without(error, path),
    }
    progress.cargo("    Blocking waiting for file lock on the build directory of images");
    loop {
        match file.lock() {
            Ok(()) => return Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return without(error, path),
        }
    }
}

/// Some file systems of networks know no locks. Cargo builds there without, and so do we.
fn without(error: std::io::Error, path: &Path) -> Result<Option<File>, BuildError> {
    match error.kind() {
        ErrorKind::Unsupported => Ok(None),
        _ => Err(io("lock", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::acquire;
    use crate::{Progress, Quiet};

    struct Said(mpsc::Sender<String>);

    impl Progress for Said {
        fn cargo(&mut self, line: &str) {
            self.0.send(line.into()).unwrap();
        }
    }

    #[test]
    fn one_waits_for_the_other_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target/.release.lock");
        let first = acquire(&path, &mut Quiet).unwrap();
        assert!(first.is_some());
        let (send, said) = mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| acquire(&path, &mut Said(send)).unwrap());
            // It has found the lock taken, and says nothing more before it has it.
            assert!(said.recv().unwrap().contains("Blocking waiting for file lock"));
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap().is_some());
        });
        assert!(said.recv().is_err());
    }
}
