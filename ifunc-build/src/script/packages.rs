//! The ifunc packages among the program's dependencies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package};

use super::ScriptError;
use super::environment::Environment;
use crate::is_own_crate;

/// Ifunc packages of one workspace, which are built together.
#[derive(Debug)]
pub(super) struct Group {
    /// The workspace's folder.
    pub(super) root: PathBuf,
    /// The manifest of one of the packages.
    pub(super) manifest: PathBuf,
    /// The packages.
    pub(super) packages: Vec<Package>,
}

impl Group {
    pub(super) fn names(&self) -> Vec<String> {
        self.packages.iter().map(|p| p.name.to_string()).collect()
    }
}

/// The packages that the script names; all ifunc packages if it names none.
pub(super) fn find(environment: &Environment, wanted: &[String]) -> Result<Vec<Group>, ScriptError> {
    // The manifest alone, without resolving dependencies: cargo then searches, locks and downloads nothing.
    let metadata = metadata(&environment.manifest, true)?;
    let program = package_at(&metadata, &environment.manifest)?;
    let dependencies: Vec<&Dependency> = program
        .dependencies
        .iter()
        .filter(|d| d.kind != DependencyKind::Build)
        .collect();

    let mut groups = BTreeMap::new();
    if wanted.is_empty() {
        for dependency in dependencies.iter().filter(|d| !d.optional) {
            if let Some(path) = &dependency.path {
                let found = Found::at(path.as_std_path())?;
                if found.why_not().is_none() {
                    found.add_to(&mut groups);
                }
            }
        }
        return Ok(groups.into_values().collect());
    }
    for name in wanted {
        let named = |d: &&&Dependency| d.name == *name || d.rename.as_ref() == Some(name);
        let Some(dependency) = dependencies.iter().find(named) else {
            return Err(ScriptError::NotADependency {
                package: environment.package.clone(),
                name: name.clone(),
                dependencies: known(&dependencies),
            });
        };
        let Some(path) = &dependency.path else {
            return Err(ScriptError::NotAPath {
                package: environment.package.clone(),
                name: name.clone(),
            });
        };
        let found = Found::at(path.as_std_path())?;
        if let Some(reason) = found.why_not() {
            return Err(ScriptError::NotAnIfuncPackage {
                name: name.clone(),
                reason: reason.into(),
            });
        }
        found.add_to(&mut groups);
    }
    Ok(groups.into_values().collect())
}

/// A local dependency.
struct Found {
    root: PathBuf,
    package: Package,
}

impl Found {
    fn at(folder: &Path) -> Result<Self, ScriptError> {
        let manifest = folder.join("Cargo.toml");
        let metadata = metadata(&manifest, true)?;
        Ok(Self {
            root: metadata.workspace_root.clone().into(),
            package: package_at(&metadata, &manifest)?.clone(),
        })
    }

    /// Why it is not an ifunc package; `None` if it is one.
    fn why_not(&self) -> Option<&'static str> {
        let depends_on = |name: &str| {
            let mut normal = self.package.dependencies.iter();
            normal.any(|d| d.name == name && d.kind == DependencyKind::Normal)
        };
        let is_library = |target: &cargo_metadata::Target| {
            target.is_lib() || target.is_rlib() || target.is_cdylib() || target.is_staticlib()
        };
        match () {
            () if !self.package.targets.iter().any(is_library) => Some("it has no library"),
            // The runtime depends on `ifunc` for the handle types.
            () if is_own_crate(&self.package.name) => Some("it is a crate of the runtime"),
            () if depends_on("ifunc-rt") => Some("it depends on `ifunc-rt`"),
            () if !depends_on("ifunc") => Some("it does not depend on `ifunc`"),
            () => None,
        }
    }

    fn add_to(self, groups: &mut BTreeMap<PathBuf, Group>) {
        let manifest: PathBuf = self.package.manifest_path.clone().into();
        let group = groups.entry(self.root.clone()).or_insert_with(|| Group {
            root: self.root,
            manifest,
            packages: Vec::new(),
        });
        if !group.packages.iter().any(|known| known.id == self.package.id) {
            group.packages.push(self.package);
        }
    }
}

/// The dependencies that the script can name.
fn known(dependencies: &[&Dependency]) -> Vec<String> {
    dependencies
        .iter()
        .filter(|dependency| {
            let path = dependency.path.as_ref();
            path.and_then(|path| Found::at(path.as_std_path()).ok())
                .is_some_and(|found| found.why_not().is_none())
        })
        .map(|dependency| dependency.name.clone())
        .collect()
}

/// Cargo's metadata of a manifest, with all dependencies unless `alone`.
pub(super) fn metadata(manifest: &Path, alone: bool) -> Result<Metadata, ScriptError> {
    let mut command = MetadataCommand::new();
    command.manifest_path(manifest);
    if let Some(folder) = manifest.parent() {
        command.current_dir(folder);
    }
    if alone {
        command.no_deps();
    }
    command.exec().map_err(|error| ScriptError::Metadata {
        manifest: manifest.into(),
        reason: match error {
            cargo_metadata::Error::CargoMetadata { stderr } => stderr.trim_end().into(),
            other => other.to_string(),
        },
    })
}

fn package_at<'m>(metadata: &'m Metadata, manifest: &Path) -> Result<&'m Package, ScriptError> {
    let same = |package: &&Package| {
        let theirs = package.manifest_path.as_std_path();
        theirs == manifest || theirs.canonicalize().ok() == manifest.canonicalize().ok()
    };
    metadata
        .packages
        .iter()
        .find(same)
        .ok_or_else(|| ScriptError::Metadata {
            manifest: manifest.into(),
            reason: "it holds no package".into(),
        })
}
