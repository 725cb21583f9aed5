//! Ifunc crates that a test writes, builds, changes and builds again.

use std::path::PathBuf;

use ifunc_build::{BuildOptions, Quiet, build_packages};

use super::workspace;

/// A crate in a folder of its own, outside the checkout's workspace.
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// A crate of this name that depends on the checkout's `ifunc` and on nothing else.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sdk = workspace().join("ifunc");
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nifunc = {{ path = {sdk:?} }}\n\n[workspace]\n"
        );
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        // The versions that are already here.
        std::fs::copy(workspace().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        super::warm::copy_to(&folder.path().join("target/ifunc"));
        Self { folder }
    }

    /// Writes `src/lib.rs` and builds; the libraries' paths by name.
    pub fn build(&self, source: &str) -> impl Fn(&str) -> PathBuf + use<> {
        std::fs::write(self.folder.path().join("src/lib.rs"), source).unwrap();
        let options = BuildOptions {
            current_dir: Some(self.folder.path().to_owned()),
            ..BuildOptions::default()
        };
        let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        move |name| {
            let found = built.iter().find(|built| built.name == name);
            found
                .unwrap_or_else(|| panic!("`{name}` was not built"))
                .path
                .clone()
        }
    }
}
