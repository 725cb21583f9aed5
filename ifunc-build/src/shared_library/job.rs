//! Links libraries in parallel, one per CPU.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use super::{LibraryPlan, io};
use crate::c::Compiler;
use crate::{BuildError, Progress};

/// The work for a library.
pub(super) struct LinkJob {
    /// Path of the library.
    pub(super) path: PathBuf,
    /// Its link; none if it is up to date.
    pub(super) link: Option<Link>,
}

/// A link that is ready to run.
pub(super) struct Link {
    pub(super) command: Command,
    /// The output of the command, in `work`.
    pub(super) result: PathBuf,
    /// The folder of the inputs, removed when dropped.
    pub(super) work: TempDir,
}

/// Makes the libraries that are not up to date. Returns for each, in order, its path and whether it was up to date.
///
/// # Errors
/// The first library that cannot be made. Those before it are in place.
pub(crate) fn make_all(
    libraries: &[LibraryPlan<'_, '_>],
    folder: &Path,
    compiler: &Compiler,
    progress: &mut dyn Progress,
) -> Result<Vec<(PathBuf, bool)>, BuildError> {
    let mut made = Vec::new();
    // A few at a time: each holds copies of its objects.
    let at_once = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for libraries in libraries.chunks(at_once) {
        let mut jobs = Vec::new();
        for library in libraries {
            jobs.push(library.prepare(folder, compiler, progress)?);
        }
        let outputs: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = jobs
                .iter_mut()
                .map(|job| {
                    job.link
                        .as_mut()
                        .map(|link| scope.spawn(|| link.command.output()))
                })
                .collect();
            let ended = running.into_iter().map(|thread| {
                thread.map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
            });
            ended.collect()
        });
        for ((library, job), output) in libraries.iter().zip(jobs).zip(outputs) {
            let LinkJob { path, link } = job;
            let fresh = link.is_none();
            if let (Some(link), Some(output)) = (link, output) {
                let output = output.map_err(|source| compiler.spawn_error(source))?;
                library.report_diagnostics(&output, compiler, progress)?;
                std::fs::rename(&link.result, &path).map_err(io("put in place", &path))?;
                drop(link.work);
            }
            made.push((path, fresh));
        }
    }
    Ok(made)
}
