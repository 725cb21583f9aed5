//! The dependency chains that bring a crate into an ifunc package, and where to switch its std off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Node, PackageId, TargetKind};

use super::command::Job;
use super::workspace::Package;

/// The dependency graph of an ifunc package, as cargo resolves it.
#[derive(Debug)]
pub(super) struct DependencyGraph {
    root: PackageId,
    metadata: Metadata,
}

impl DependencyGraph {
    /// Runs `cargo metadata` with the features of the build; `None` if it fails.
    pub(super) fn read(job: &Job<'_>, package: &Package) -> Option<Self> {
        let mut command = MetadataCommand::new();
        if let Some(directory) = &job.options.current_dir {
            command.current_dir(directory);
        }
        command.manifest_path(&package.manifest_path);
        // Dependencies for other builds alone are not part of an image.
        command.env("CARGO_ENCODED_RUSTFLAGS", "--cfg=ifunc_image");
        let mut flags = vec![
            "--filter-platform".to_owned(),
            job.workspace.triple.name().to_owned(),
        ];
        for feature in job.features.get(&package.name).into_iter().flatten() {
            flags.extend(["--features".to_owned(), feature.clone()]);
        }
        let options = job.options;
        for (wanted, flag) in [
            (options.all_features, "--all-features"),
            (options.no_default_features, "--no-default-features"),
            (options.locked, "--locked"),
            (options.offline, "--offline"),
        ] {
            if wanted {
                flags.push(flag.into());
            }
        }
        let metadata = command.other_options(flags).exec().ok()?;
        Some(Self {
            root: package.id.clone(),
            metadata,
        })
    }

    /// The remedy for `culprit`, a crate that uses std: the chain of crates that brings it, and where to cut the chain.
    /// The compiler does not distinguish versions of one crate.
    pub(super) fn about_std(&self, culprit: &str) -> Option<Vec<String>> {
        let paths = self.paths(culprit);
        let chains = self.all_rendered(&paths)?;
        let which = match &paths[..] {
            [path] => format!("`{}` uses std", path.last()?.name),
            _ => format!("at least one of these crates `{culprit}` uses std"),
        };
        let mut helps = vec![format!("{chains}: {which}, which cannot travel")];
        for path in &paths {
            let cut = self.cut(path)?;
            let last = path.last()?;
            helps.push(match paths.len() {
                1 => cut,
                _ => format!("as to `{} {}`: {cut}", last.name, last.version),
            });
        }
        Some(helps)
    }

    /// The chains of crates that bring `culprit`, for a message.
    pub(super) fn chain(&self, culprit: &str) -> Option<String> {
        self.all_rendered(&self.paths(culprit))
    }

    /// `None` if there is none.
    fn all_rendered(&self, paths: &[Vec<&cargo_metadata::Package>]) -> Option<String> {
        let chains: Vec<_> = paths.iter().map(|path| self.shown(path)).collect();
        (!chains.is_empty()).then(|| chains.join(", and "))
    }

    fn shown(&self, path: &[&cargo_metadata::Package]) -> String {
        let names = path.iter().map(|package| match package.id == self.root {
            true => format!("`{}`", package.name),
            false => format!("`{} {}`", package.name, package.version),
        });
        names.collect::<Vec<_>>().join(" → ")
    }

    /// The shortest path from the package to each crate of this name, both included. Crates with `#![no_std]` are left
    /// out if another crate lacks it. Crates that only run at compile time (macros, build scripts) may use std and do
    /// not count.
    fn paths(&self, culprit: &str) -> Vec<Vec<&cargo_metadata::Package>> {
        let mut before: BTreeMap<&PackageId, &PackageId> = BTreeMap::new();
        let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
        let mut next: VecDeque<&PackageId> = VecDeque::new();
        let mut paths = Vec::new();
        let first = &self.root;
        seen.insert(first);
        next.push_back(first);
        while let Some(id) = next.pop_front() {
            let Some(package) = self.package(id) else { continue };
            if id != first && library_of(package).is_some_and(|name| name == culprit) {
                let mut path = vec![package];
                let mut at = id;
                while let Some(earlier) = before.get(at) {
                    path.extend(self.package(earlier));
                    at = earlier;
                }
                path.reverse();
                paths.push(path);
            }
            let dependencies = self.node(id).map(|node| &node.deps[..]).unwrap_or_default();
            for dependency in dependencies {
                let is_normal = dependency
                    .dep_kinds
                    .iter()
                    .any(|kind| kind.kind == DependencyKind::Normal);
                let travels = self
                    .package(&dependency.pkg)
                    .is_some_and(|p| library_of(p).is_some());
                if is_normal && travels && seen.insert(&dependency.pkg) {
                    before.insert(&dependency.pkg, id);
                    next.push_back(&dependency.pkg);
                }
            }
        }
        let without_std =
            |path: &Vec<&cargo_metadata::Package>| path.last().is_some_and(|last| is_no_std(last));
        if paths.len() > 1 && !paths.iter().all(without_std) {
            paths.retain(|path| !without_std(path));
        }
        paths
    }

    /// Where the path to a crate that uses std can be cut: at the first crate on it whose feature `std` is on.
    fn cut(&self, path: &[&cargo_metadata::Package]) -> Option<String> {
        let root = &path.first()?.name;
        for pair in path.windows(2) {
            let [parent, child] = pair else { continue };
            let enabled = &self.node(&child.id)?.features;
            if !enabled.iter().any(|feature| feature.as_str() == "std") {
                continue;
            }
            let name = &child.name;
            let declared = declaration(parent, child);
            if declared.is_some_and(|d| d.features.iter().any(|feature| feature == "std")) {
                return Some(format!(
                    "the manifest of `{}` asks for the feature `std` of `{name}`: leave it out of `features`",
                    parent.name
                ));
            }
            if declared.is_some_and(|d| d.uses_default_features) && is_default(child, "std") {
                let line = format!("`{name} = {{ .., default-features = false }}`");
                return Some(match parent.name == *root {
                    true => format!(
                        "`std` is a default feature of `{name}`: write {line} in the manifest of `{root}`"
                    ),
                    false => format!(
                        "`std` is a default feature of `{name}`: the manifest of `{}` would need {line}; if you cannot change it, leave `{}` out of `{root}`",
                        parent.name, path[1].name
                    ),
                });
            }
            let on = self.node(&parent.id)?.features.iter().find(|on| {
                let asked = parent.features.get(on.as_str()).into_iter().flatten();
                asked
                    .filter_map(|asked| asked.split_once('/'))
                    .any(|(of, feature)| {
                        feature == "std" && is_called(declared, child, of.trim_end_matches('?'))
                    })
            });
            return Some(match on {
                Some(on) => format!(
                    "the feature `{on}` of `{}` switches the feature `std` of `{name}` on: leave it out",
                    parent.name
                ),
                None => format!(
                    "the feature `std` of `{name}` is on; `cargo tree -p {root} -e features -i {name}` shows which crate enables it"
                ),
            });
        }
        let (first, last) = (&path.get(1)?.name, &path.last()?.name);
        Some(format!(
            "`{last}` has no feature `std` to switch off: leave `{first}` out of `{root}`, or, if only your tests and sources need it, put it under `[target.'cfg(not(ifunc_image))'.dependencies]`"
        ))
    }

    fn node(&self, id: &PackageId) -> Option<&Node> {
        self.metadata
            .resolve
            .as_ref()?
            .nodes
            .iter()
            .find(|node| node.id == *id)
    }

    fn package(&self, id: &PackageId) -> Option<&cargo_metadata::Package> {
        self.metadata.packages.iter().find(|package| package.id == *id)
    }
}

/// Whether the source of a library excludes std: an unconditional `#![no_std]`, and no `extern crate std`.
fn is_no_std(package: &cargo_metadata::Package) -> bool {
    let source = library(package).and_then(|library| std::fs::read_to_string(&library.src_path).ok());
    source.is_some_and(|text| {
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| line.starts_with("#![no_std]")) && !text.contains("extern crate std")
    })
}

/// Name of the library crate of a package, unless it is a macro crate.
fn library_of(package: &cargo_metadata::Package) -> Option<String> {
    library(package).map(|library| library.name.replace('-', "_"))
}

fn library(package: &cargo_metadata::Package) -> Option<&cargo_metadata::Target> {
    package.targets.iter().find(|target| {
        target.kind.iter().any(|kind| {
            matches!(
                kind,
                TargetKind::Lib
                    | TargetKind::RLib
                    | TargetKind::DyLib
                    | TargetKind::CDyLib
                    | TargetKind::StaticLib
            )
        })
    })
}

/// The line of a manifest by which `parent` depends on `child`.
fn declaration<'p>(
    parent: &'p cargo_metadata::Package,
    child: &cargo_metadata::Package,
) -> Option<&'p Dependency> {
    parent
        .dependencies
        .iter()
        .find(|declared| declared.kind == DependencyKind::Normal && declared.name == *child.name)
}

fn is_called(declared: Option<&Dependency>, child: &cargo_metadata::Package, name: &str) -> bool {
    let renamed = declared.and_then(|declared| declared.rename.as_deref());
    renamed.unwrap_or(&child.name) == name
}

/// Whether a feature is on by default, by itself or through other features.
fn is_default(package: &cargo_metadata::Package, feature: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec!["default"];
    while let Some(name) = next.pop() {
        if name == feature {
            return true;
        }
        if seen.insert(name) {
            next.extend(
                package
                    .features
                    .get(name)
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
    }
    false
}
