//! Examples of packages that hold ifuncs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::workspace::{Example, Package};
use crate::BuildError;
use crate::shared_library::io;

/// The compiler wrapper.
const WRAPPER: &str = include_str!("example.sh");

/// The package of each requested example, and the example.
pub(super) fn find<'a>(
    asked: &[String],
    packages: &[&'a Package],
) -> Result<Vec<(&'a Package, &'a Example)>, BuildError> {
    let mut found = Vec::new();
    for name in asked {
        let mut there = packages.iter().flat_map(|package| {
            let own = package.examples.iter().filter(|example| example.name == *name);
            own.map(|example| (*package, example))
        });
        match (there.next(), there.next()) {
            (Some(one), None) => found.push(one),
            (None, _) => {
                let all: Vec<String> = packages
                    .iter()
                    .flat_map(|package| &package.examples)
                    .map(|example| format!("`{}`", example.name))
                    .collect();
                return Err(BuildError::UnknownExample {
                    name: name.clone(),
                    help: match all.is_empty() {
                        true => "no ifunc package that is built has an example".into(),
                        false => format!("there are: {}", all.join(", ")),
                    },
                });
            }
            (Some((first, _)), Some((second, _))) => {
                return Err(BuildError::UnknownExample {
                    name: name.clone(),
                    help: format!(
                        "`{}` and `{}` have one each: choose one with `-p`",
                        first.name, second.name
                    ),
                });
            }
        }
    }
    Ok(found)
}

/// Writes the script to `target`, unless it exists, and returns its path. Cargo takes another path for another
/// compiler, and a changed file for a changed compiler.
pub(super) fn wrapper(target: &Path) -> Result<PathBuf, BuildError> {
    let path = target.join("example-as-library.sh");
    if fs::read_to_string(&path).is_ok_and(|there| there == WRAPPER) {
        return Ok(path);
    }
    fs::create_dir_all(target).map_err(io("create", target))?;
    // Atomic, because another build may be about to run it.
    let new = tempfile::NamedTempFile::new_in(target).map_err(io("create a file in", target))?;
    fs::write(new.path(), WRAPPER).map_err(io("write", new.path()))?;
    fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755)).map_err(io("write", new.path()))?;
    new.persist(&path).map_err(|e| io("write", &path)(e.error))?;
    Ok(path)
}
