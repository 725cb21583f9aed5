//! C ifuncs.

use std::path::PathBuf;

use crate::{BuildError, BuiltIfunc, COptions, Progress};

/// Builds every ifunc of the C files.
///
/// # Errors
/// The first file that does not build.
pub fn build_c(
    files: &[PathBuf],
    options: &COptions,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let _ = (files, options, progress);
    Ok(Vec::new())
}
