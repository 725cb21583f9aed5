//! The output of a build script for `ifunc_rt::include_image!`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::ScriptError;
use crate::{BuiltIfunc, read_library};

/// The variable that holds the path of the index for the program's compiler.
pub(super) const VARIABLE: &str = "IFUNC_IMAGES";

/// Writes every image, its about text, and an index: an array of (name, image, about) as a Rust expression. Files with
/// the right contents are not written.
pub(super) fn write(folder: &Path, built: &[BuiltIfunc]) -> Result<PathBuf, ScriptError> {
    let images = folder.join("images");
    fs::create_dir_all(&images).map_err(ScriptError::io("create", &images))?;
    let mut places: BTreeMap<&str, &Path> = BTreeMap::new();
    let mut index = String::from("&[\n");
    for ifunc in built {
        let name = &*ifunc.name;
        if let Some(first) = places.insert(name, &ifunc.source) {
            return Err(ScriptError::DuplicateName {
                name: name.into(),
                first: first.into(),
                second: ifunc.source.clone(),
            });
        }
        replace(&images.join(format!("{name}.image")), &ifunc.embedded())?;
        replace(&images.join(format!("{name}.about")), about(ifunc).as_bytes())?;
        // `include_bytes!` resolves paths relative to the index. A name is a C identifier.
        let _ = writeln!(
            index,
            "    (\"{name}\", include_bytes!(\"{name}.image\") as &[u8], include_bytes!(\"{name}.about\") as &[u8]),"
        );
    }
    index.push_str("]\n");
    let path = images.join("index.rs");
    replace(&path, index.as_bytes())?;
    Ok(path)
}

/// The texts of its types, for error messages.
fn about(ifunc: &BuiltIfunc) -> String {
    let library = read_library(&ifunc.path).unwrap_or_default();
    let mut images = library.images.into_iter();
    images
        .find(|image| image.name == ifunc.name)
        .map_or_else(String::new, |image| image.about)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ScriptError> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(ScriptError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;

    /// Builds of two workspaces do not know each other's names.
    #[test]
    fn two_workspaces_may_not_have_ifuncs_of_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let built = |source: &str| BuiltIfunc {
            name: "add".into(),
            path: folder.path().join("add.so"),
            id: [0; 32],
            image: Vec::new(),
            other_slices: Vec::new(),
            package: None,
            source: source.into(),
            fresh: false,
            language: Language::Rust,
            relocations: Vec::new(),
        };
        let error = write(
            folder.path(),
            &[built("near/Cargo.toml"), built("far/Cargo.toml")],
        )
        .unwrap_err();
        assert!(
            matches!(&error, ScriptError::DuplicateName { name, .. } if name == "add"),
            "{error:?}"
        );
        let text = error.to_string();
        for part in [
            "one in `near/Cargo.toml`, one in `far/Cargo.toml`",
            "help: write `#[ifunc(name = \"add_2\")]`",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
