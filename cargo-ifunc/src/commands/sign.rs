//! `cargo ifunc sign`

use std::path::{Path, PathBuf};

use ifunc_abi::ImageId;
use ifunc_rt::keys::{SecretKey, Signatures};

use super::inspect::images_of;
use crate::cli::SignArgs;
use crate::error::Failure;
use crate::shell::Shell;

/// Extension of a file of signatures.
const EXTENSION: &str = "sig";

pub(crate) fn run(args: &SignArgs, shell: &mut Shell) -> Result<(), Failure> {
    let key = SecretKey::read(&args.key)?;
    let mut together = known(args.output.as_deref())?;
    for file in &args.files {
        let images = ids_of(file)?;
        let beside = signatures_of(file);
        let mut alone = known(Some(&beside))?;
        let signatures = match args.output {
            Some(_) => &mut together,
            None => {
                // Those of an earlier build are of no use.
                let ids: Vec<ImageId> = images.iter().map(|(_, id)| *id).collect();
                alone.retain_images(&ids);
                &mut alone
            }
        };
        for (name, id) in &images {
            signatures.add(key.sign(id));
            let path = args.output.as_deref().unwrap_or(&beside);
            shell.status("Signed", format_args!("{name} in {}", path.display()));
        }
        if args.output.is_none() {
            alone.write(&beside)?;
        }
    }
    if let Some(path) = &args.output {
        together.write(path)?;
    }
    Ok(())
}

/// The signatures in a file, if there is one.
fn known(path: Option<&Path>) -> Result<Signatures, Failure> {
    match path {
        Some(path) if path.exists() => Ok(Signatures::read(path)?),
        _ => Ok(Signatures::default()),
    }
}

/// The file of signatures beside a library.
pub(super) fn signatures_of(library: &Path) -> PathBuf {
    library.with_extension(EXTENSION)
}

/// Names and ids of the images of a library.
pub(super) fn ids_of(file: &Path) -> Result<Vec<(String, ImageId)>, Failure> {
    let images = images_of(file)?.into_iter();
    Ok(images
        .map(|found| {
            let id = found.image.id();
            (found.image.name, id)
        })
        .collect())
}
