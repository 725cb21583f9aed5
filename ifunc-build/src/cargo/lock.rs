//! A file lock of a folder between processes, as in cargo.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use crate::shared_library::io;
use crate::{BuildError, Progress};

/// Waits for the lock without a limit, and reports the wait. The lock is released when the file is dropped or the
/// process ends.
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

/// Some network file systems have no locks. Cargo builds there without a lock; so does this builder.
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
        let (send, reported) = mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| acquire(&path, &mut Said(send)).unwrap());
            // The second thread waits for the lock and reports nothing until it holds it.
            assert!(
                reported
                    .recv()
                    .unwrap()
                    .contains("Blocking waiting for file lock")
            );
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap().is_some());
        });
        assert!(reported.recv().is_err());
    }
}
