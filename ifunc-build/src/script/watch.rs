//! The files and variables whose change runs the build script again.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

use super::packages::{Group, metadata};
use super::{ScriptError, compiled};

/// Variables that select the C compiler, its search paths and its date. (Cargo itself detects another rustc.)
const OF_C: [&str; 7] = [
    "CC",
    "COMPILER_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH",
];

/// Files, folders and variables that the images depend on.
#[derive(Debug)]
pub(super) struct Watched {
    paths: BTreeSet<PathBuf>,
    variables: BTreeSet<String>,
}

impl Watched {
    /// Only what every build depends on.
    pub(super) fn new() -> Self {
        Self {
            paths: BTreeSet::new(),
            variables: OF_C.map(Into::into).into(),
        }
    }

    pub(super) fn file(&mut self, path: &Path) {
        self.paths.insert(path.into());
    }

    /// The packages and their local dependencies. A package from a registry or from git changes only with the lock
    /// file.
    pub(super) fn packages(&mut self, group: &Group, target: &Path) -> Result<(), ScriptError> {
        let metadata = metadata(&group.manifest, false)?;
        self.file(&group.root.join("Cargo.toml"));
        self.file(&group.root.join("Cargo.lock"));
        self.configuration(&group.root);
        let local = local(&metadata, group);
        let folders = |name: &str| {
            let packages = metadata.packages.iter().filter(|package| *package.name == name);
            packages.map(folder_of).map(Path::to_owned).collect()
        };
        let compiled = compiled::read(target, folders);
        for package in local {
            self.package(package);
            if compiled.silent.contains(package.name.as_str()) {
                self.folder(folder_of(package));
            }
        }
        for package in &group.packages {
            self.c_of(package);
        }
        self.paths.extend(compiled.files);
        self.variables.extend(compiled.variables);
        Ok(())
    }

    /// The configuration files of cargo: their `[env]`, for example, is the compiler's environment.
    fn configuration(&mut self, root: &Path) {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let folders = root.ancestors().map(|folder| folder.join(".cargo")).chain(home);
        for folder in folders {
            self.file(&folder.join("config.toml"));
            self.file(&folder.join("config"));
        }
    }

    /// All files of a package except build output.
    fn folder(&mut self, folder: &Path) {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            // Cargo writes this file into every target directory.
            if !hidden && !path.join("CACHEDIR.TAG").exists() {
                self.file(&path);
            }
        }
    }

    /// The source folders of a package: new files count too.
    fn package(&mut self, package: &Package) {
        let manifest = package.manifest_path.as_std_path();
        self.file(manifest);
        for target in &package.targets {
            if target.is_bin() || target.is_example() || target.is_test() || target.is_bench() {
                continue;
            }
            let source = target.src_path.as_std_path();
            match source.parent() {
                // The package's folder may hold a target directory.
                Some(folder) if Some(folder) != manifest.parent() => self.file(folder),
                _ => self.file(source),
            }
        }
    }

    /// The folder of an ifunc package's C files: new files count. The compiler reports the included files.
    fn c_of(&mut self, package: &Package) {
        self.file(&folder_of(package).join("c"));
    }

    /// Prints the list for cargo. A missing path would make cargo run the script every time.
    pub(super) fn print(&self) {
        for path in self.paths.iter().filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        for name in &self.variables {
            println!("cargo::rerun-if-env-changed={name}");
        }
    }
}

/// The packages of the group and their local dependencies.
fn local<'m>(metadata: &'m Metadata, group: &Group) -> Vec<&'m Package> {
    let nodes = metadata.resolve.as_ref().map(|resolve| &resolve.nodes[..]);
    let nodes = nodes.unwrap_or_default();
    let mut next: Vec<&PackageId> = group.packages.iter().map(|package| &package.id).collect();
    let mut seen: HashSet<&PackageId> = HashSet::new();
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes
            .iter()
            .filter(|node| node.id == *id)
            .flat_map(|node| &node.deps)
        {
            let kinds = &dependency.dep_kinds;
            if kinds.is_empty() || kinds.iter().any(|kind| kind.kind != DependencyKind::Development) {
                next.push(&dependency.pkg);
            }
        }
    }
    let packages = metadata.packages.iter();
    packages
        .filter(|package| package.source.is_none() && seen.contains(&package.id))
        .collect()
}

fn folder_of(package: &Package) -> &Path {
    let manifest = package.manifest_path.as_std_path();
    manifest.parent().unwrap_or(manifest)
}
