//! Builds images for other commands.

use std::path::PathBuf;

use ifunc_abi::Counted;
use ifunc_build::{BuildError, BuildOptions, build_packages};

use crate::error::Failure;
use crate::progress::BuildProgress;
use crate::shell::Shell;

/// Builds the images of those `options.packages` that have any, and returns their folder; `None` if none has
/// one.
pub(crate) fn build(mut options: BuildOptions, shell: &mut Shell) -> Result<Option<PathBuf>, Failure> {
    while !options.packages.is_empty() {
        let built = build_packages(&options, &mut BuildProgress::new(shell));
        match built {
            Ok(built) => {
                shell.detail("Finished", Counted(built.len(), "ifunc"));
                let folder = built.first().and_then(|ifunc| ifunc.path.parent());
                return Ok(folder.map(Into::into));
            }
            // A package of types that host and ifuncs share also depends on the SDK, but has no ifuncs.
            Err(BuildError::NoIfuncs { package, .. }) if options.packages.contains(&package) => {
                options.packages.retain(|name| *name != package);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}
