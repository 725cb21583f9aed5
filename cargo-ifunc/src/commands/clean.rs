//! `cargo ifunc clean`

use std::fs;
use std::path::{Path, PathBuf};

use ifunc_abi::Counted;

use crate::cli::{CargoArgs, CleanArgs};
use crate::error::Failure;
use crate::shell::{Shell, shown};
use crate::workspace::Workspace;

/// What a folder of this command has and no other.
const MARKS: [&str; 4] = ["include", "release", "debug", "run"];

pub(crate) fn run(args: &CleanArgs, shell: &mut Shell) -> Result<(), Failure> {
    let folder = folder(args)?;
    if !folder.exists() {
        shell.status("Removed", format_args!("nothing: there is no {}", shown(&folder)));
        return Ok(());
    }
    if !MARKS.iter().any(|mark| folder.join(mark).is_dir()) {
        return Err(Failure::Usage(format!(
            "`{}` holds nothing that this command has built\nhelp: --target-dir takes the directory that was given to `cargo ifunc build`",
            folder.display()
        )));
    }
    let (files, bytes) = size(&folder).map_err(Failure::io("read", &folder))?;
    let what = format!(
        "{}, {:.1} MiB, in {}",
        Counted(files, "file"),
        bytes as f64 / f64::from(1 << 20),
        shown(&folder)
    );
    if args.dry_run {
        shell.status("Would remove", what);
        return Ok(());
    }
    fs::remove_dir_all(&folder).map_err(Failure::io("remove", &folder))?;
    shell.status("Removed", what);
    Ok(())
}

fn folder(args: &CleanArgs) -> Result<PathBuf, Failure> {
    if let Some(folder) = &args.target_dir {
        return Ok(folder.clone());
    }
    let cargo = CargoArgs::default();
    let workspace = Workspace::read(args.manifest_path.as_deref(), &cargo)?;
    Ok(workspace.target_directory().join("ifunc"))
}

/// Files and bytes below a folder. A file with several names counts once.
fn size(folder: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;

    let (mut files, mut bytes) = (0, 0);
    let mut seen = std::collections::HashSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                files += 1;
                bytes += if seen.insert((metadata.dev(), metadata.ino())) {
                    metadata.len()
                } else {
                    0
                };
            }
        }
    }
    Ok((files, bytes))
}
