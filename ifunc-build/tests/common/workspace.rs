//! Cargo workspaces in temporary directories.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ifunc_build::{BuildError, BuildOptions, BuiltIfunc, Quiet, build_packages};

/// The dependency that an ifunc package has.
pub const DEPENDS: &str = "[dependencies]\nifunc = { IFUNC }";

/// A workspace.
pub struct Workspace {
    pub dir: tempfile::TempDir,
    target: PathBuf,
}

impl Workspace {
    pub fn new(members: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let members = members
            .iter()
            .map(|m| format!("{m:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let manifest = format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n");
        fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
        // The versions of the checkout, which are available offline.
        let lock = sdk().with_file_name("Cargo.lock");
        if lock.exists() {
            fs::copy(lock, dir.path().join("Cargo.lock")).unwrap();
        }
        // One for all tests: the dependencies of `ifunc` are compiled once. Every test has its own names.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ifunc");
        Self { dir, target }
    }

    /// The same, with a target directory of its own.
    pub fn alone(members: &[&str]) -> Self {
        let mut workspace = Self::new(members);
        workspace.target = workspace.dir.path().join("elsewhere");
        super::warm::copy_to(&workspace.target);
        workspace
    }

    /// Adds a package; `IFUNC` in the manifest becomes the path of the SDK.
    pub fn package(&self, name: &str, manifest: &str, source: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(folder.join("src")).unwrap();
        let manifest = manifest.replace("IFUNC", &format!("path = {:?}", sdk().to_str().unwrap()));
        let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        fs::write(folder.join("Cargo.toml"), head + &manifest).unwrap();
        fs::write(folder.join("src/lib.rs"), source).unwrap();
        folder
    }

    /// Makes an archive of one C source.
    pub fn archive(&self, path: &Path, source: &str) {
        let (c, o) = (path.with_extension("c"), path.with_extension("o"));
        fs::write(&c, source).unwrap();
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        run(Command::new("cc").args(["-c", "-fPIC", "-o"]).args([&o, &c]));
        run(Command::new("ar").arg("rcs").args([path, &o]));
    }

    pub fn options(&self) -> BuildOptions {
        BuildOptions {
            current_dir: Some(self.dir.path().into()),
            manifest_path: Some(self.dir.path().join("Cargo.toml")),
            target_dir: Some(self.target.clone()),
            offline: true,
            ..BuildOptions::default()
        }
    }

    /// Path of a library, after removing that of an earlier run.
    pub fn library(&self, name: &str) -> PathBuf {
        let path = self.target.join(format!("release/{name}.so"));
        let _ = fs::remove_file(&path);
        path
    }

    pub fn build(&self) -> Result<Vec<BuiltIfunc>, BuildError> {
        build_packages(&self.options(), &mut Quiet)
    }

    /// Builds these packages only.
    pub fn build_only(&self, packages: &[&str]) -> Result<Vec<BuiltIfunc>, BuildError> {
        let packages = packages.iter().map(|&p| p.into()).collect();
        build_packages(
            &BuildOptions {
                packages,
                ..self.options()
            },
            &mut Quiet,
        )
    }

    /// Returns the error of a build that must fail.
    pub fn refusal(&self) -> String {
        self.build().expect_err("the build is to fail").to_string()
    }
}

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("ifunc")
}
