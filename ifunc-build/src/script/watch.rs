//! What cargo is to look at before it runs the build script again.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

use super::packages::{Group, metadata};
use super::{ScriptError, make_rule};
use crate::c::Compiler;

/// Files, folders and variables that the images depend on.
#[derive(Debug, Default)]
pub(super) struct Watched {
    paths: BTreeSet<PathBuf>,
    variables: BTreeSet<&'static str>,
}

impl Watched {
    pub(super) fn variable(&mut self, name: &'static str) {
        self.variables.insert(name);
    }

    pub(super) fn file(&mut self, path: &Path) {
        self.paths.insert(path.into());
    }

    /// A C file and the headers that it includes, but for those of the system.
    pub(super) fn c_file(&mut self, file: &Path, cflags: &[String]) {
        self.file(file);
        let mut command = Compiler::new(None).command();
        // What is not there is no error: the compiler itself says it better.
        command.args(["-MM", "-MG"]).args(cflags).arg(file);
        let Ok(output) = command.output() else { return };
        let rule = String::from_utf8_lossy(&output.stdout);
        self.paths.extend(make_rule::prerequisites(&rule));
    }

    /// The packages, and every package that they depend on and that lies in a folder: one from a registry or from git does
    /// not change, but by the lock file.
    pub(super) fn packages(&mut self, group: &Group, target: &Path) -> Result<(), ScriptError> {
        let metadata = metadata(&group.manifest, false)?;
        self.file(&group.root.join("Cargo.toml"));
        self.file(&group.root.join("Cargo.lock"));
        for package in local(&metadata, group) {
            self.package(package);
        }
        for package in &group.packages {
            self.c_of(package);
            for rule in rules(package, target) {
                self.paths.extend(make_rule::prerequisites(&rule));
            }
        }
        Ok(())
    }

    /// The folders of a package's sources: what is new there counts, too.
    fn package(&mut self, package: &Package) {
        let manifest = package.manifest_path.as_std_path();
        self.file(manifest);
        for target in &package.targets {
            if target.is_bin() || target.is_example() || target.is_test() || target.is_bench() {
                continue;
            }
            let source = target.src_path.as_std_path();
            match source.parent() {
                // The package's folder itself may hold a target directory.
                Some(folder) if Some(folder) != manifest.parent() => self.file(folder),
                _ => self.file(source),
            }
        }
    }

    /// The C files of an ifunc package.
    fn c_of(&mut self, package: &Package) {
        let folder = package.manifest_path.as_std_path().with_file_name("c");
        let Ok(entries) = std::fs::read_dir(&folder) else {
            return;
        };
        self.file(&folder);
        let flags = package.metadata["ifunc"]["cflags"].as_array();
        let flags: Vec<String> = flags
            .into_iter()
            .flatten()
            .filter_map(|flag| flag.as_str().map(str::to_owned))
            .collect();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "c") {
                self.c_file(&path, &flags);
            }
        }
    }

    /// Tells cargo. A path that is not there would have it run the script every time.
    pub(super) fn tell(&self) {
        for path in self.paths.iter().filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        for name in &self.variables {
            println!("cargo::rerun-if-env-changed={name}");
        }
    }
}

/// The packages of the group and what they depend on, as far as it lies in folders.
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

/// What cargo wrote of the files that went into a package's archive: also those that `include_str!` reads.
fn rules(package: &Package, target: &Path) -> Vec<String> {
    let library = package.targets.iter().find(|target| !target.is_bin());
    let name = library.map_or_else(String::new, |library| library.name.replace('-', "_"));
    let children = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect::<Vec<_>>()
    };
    // `TARGET/TRIPLE/PROFILE/libNAME.d`
    children(target)
        .iter()
        .flat_map(|triple| children(triple))
        .filter_map(|profile| std::fs::read_to_string(profile.join(format!("lib{name}.d"))).ok())
        .collect()
}
