//! The cargo workspace: its ifunc packages and host packages.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::cli::CargoArgs;
use crate::error::Failure;

/// Help for errors about having nothing to build or run.
pub(crate) fn how_to_start() -> String {
    format!(
        "help: start a project with `cargo ifunc new NAME`, or make an ifunc package by hand: `cargo new --lib NAME`, `{}` in it, \
         `#![no_std]` and an `#[ifunc]` function in its src/lib.rs\n\
         help: a C file by itself is built with `cargo ifunc build PATH.c`",
        crate::commands::new::how_to_add()
    )
}

/// The names that the programs of a host package have, unless its manifest names others.
pub(crate) const HOST_BINS: [&str; 3] = ["target", "source", "both"];

/// The programs of a host package: names of binaries, of this package or of another member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Programs {
    pub(crate) target: String,
    /// `None`: the target runs alone.
    pub(crate) source: Option<String>,
    /// Target and source in one process.
    pub(crate) both: Option<String>,
}

impl Programs {
    /// All of them. A run builds those that it does not start, too: other programs start them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let others = self.source.iter().chain(&self.both);
        [&self.target].into_iter().chain(others).map(String::as_str)
    }
}

/// A cargo workspace.
pub(crate) struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// Runs `cargo metadata` on the workspace of the current directory or of `manifest_path`.
    pub(crate) fn read(manifest_path: Option<&Path>, args: &CargoArgs) -> Result<Self, Failure> {
        let mut command = MetadataCommand::new();
        if let Some(path) = manifest_path {
            command.manifest_path(path);
        }
        let flags = [(args.locked, "--locked"), (args.offline, "--offline")];
        command.other_options(
            flags
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, flag)| flag.into())
                .collect::<Vec<_>>(),
        );
        let metadata = command.exec().map_err(|e| match e {
            cargo_metadata::Error::CargoMetadata { stderr } => unreadable(&stderr),
            other => Failure::Metadata(other.to_string()),
        })?;
        Ok(Self { metadata })
    }

    /// The error for a workspace without ifunc packages.
    pub(crate) fn no_ifunc_package(&self) -> Failure {
        Failure::Message(format!(
            "no package of the workspace at `{}` depends on `ifunc`\n{}",
            self.root().display(),
            how_to_start(),
        ))
    }

    /// The member with this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.members().find(|package| package.name.as_str() == name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    pub(crate) fn target_directory(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// Members that may contain ifuncs: they depend on `ifunc` directly and not on `ifunc-rt`.
    pub(crate) fn ifunc_packages(&self) -> Vec<&Package> {
        self.members().filter(|package| holds_ifuncs(package)).collect()
    }

    /// Members that can run: they depend on `ifunc-rt`, and have the three binaries or name others.
    pub(crate) fn host_packages(&self) -> Vec<&Package> {
        self.members().filter(|package| is_host(package)).collect()
    }

    /// Members whose tests run images: those of ifunc packages, and those that use `ifunc-test`.
    pub(crate) fn tested_packages(&self) -> Vec<&Package> {
        self.members()
            .filter(|package| holds_ifuncs(package) || is_host(package) && tests_images(package))
            .collect()
    }

    /// The programs of a host package: those that `[package.metadata.ifunc]` names, or `target`, `source` and `both`.
    pub(crate) fn programs(&self, host: &Package) -> Result<Programs, Failure> {
        let error =
            |why: String| Failure::Message(format!("`{}` in `{}`: {why}", host.name, host.manifest_path));
        let table = &host.metadata["ifunc"];
        let key = |key: &str| match &table[key] {
            serde_json::Value::Null => Ok(None),
            serde_json::Value::String(name) => match self.package_of_binary(host, name) {
                Some(_) => Ok(Some(name.clone())),
                None => {
                    let own: Vec<_> = binaries(host).map(|name| format!("`{name}`")).collect();
                    Err(error(format!(
                        "`[package.metadata.ifunc] {key} = \"{name}\"` names no binary of this workspace\nhelp: the package has {}",
                        if own.is_empty() {
                            "none".to_owned()
                        } else {
                            own.join(", ")
                        },
                    )))
                }
            },
            other => Err(error(format!(
                "`[package.metadata.ifunc] {key} = {other}` is not the name of a binary"
            ))),
        };
        let known = |name: &&String| HOST_BINS.contains(&name.as_str());
        if let Some(unknown) = table
            .as_object()
            .and_then(|table| table.keys().find(|name| !known(name)))
        {
            let keys = HOST_BINS.map(|key| format!("`{key}`")).join(", ");
            return Err(error(format!(
                "unknown key `{unknown}` in `[package.metadata.ifunc]`\nhelp: the keys of a host package are {keys}"
            )));
        }
        let [target, source, both] = HOST_BINS;
        let or_usual = |named: Option<String>, usual: &str| {
            named.or_else(|| binaries(host).any(|name| name == usual).then(|| usual.to_owned()))
        };
        let Some(target) = or_usual(key(target)?, target) else {
            return Err(error(
                "no binary is the target\nhelp: name one: `[package.metadata.ifunc] target = \"NAME\"`"
                    .into(),
            ));
        };
        Ok(Programs {
            target,
            source: or_usual(key(source)?, source),
            both: or_usual(key(both)?, both),
        })
    }

    /// The package with this binary: `host`, or another member.
    pub(crate) fn package_of_binary<'a>(&'a self, host: &'a Package, name: &str) -> Option<&'a Package> {
        let has = |package: &&Package| binaries(package).any(|binary| binary == name);
        Some(host).filter(has).or_else(|| self.members().find(has))
    }

    /// The ifunc packages among the direct and indirect dependencies of `host`.
    pub(crate) fn ifunc_packages_of(&self, host: &Package) -> Vec<&Package> {
        let mut seen = HashSet::new();
        let mut next = vec![&host.id];
        let nodes = self
            .metadata
            .resolve
            .as_ref()
            .map(|resolve| &resolve.nodes[..])
            .unwrap_or_default();
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(node) = nodes.iter().find(|node| node.id == *id) else {
                continue;
            };
            let normal = node.deps.iter().filter(|dep| {
                dep.dep_kinds.is_empty()
                    || dep
                        .dep_kinds
                        .iter()
                        .any(|kind| kind.kind == DependencyKind::Normal)
            });
            next.extend(normal.map(|dep| &dep.pkg));
        }
        self.ifunc_packages()
            .into_iter()
            .filter(|package| seen.contains(&package.id))
            .collect()
    }

    /// The host package called `name`; without a name, that of the current directory or the only one.
    pub(crate) fn host(&self, name: Option<&str>) -> Result<&Package, Failure> {
        let hosts = self.host_packages();
        let Some(name) = name else {
            return self.only_host(&hosts);
        };
        // Accepts `examples/01-hello` and `examples/01-hello/`, from shell completion.
        let name = name.trim_end_matches('/').trim_start_matches("examples/");
        let example = format!("example-{name}");
        if let Some(host) = hosts
            .iter()
            .find(|host| host.name.as_str() == name || *host.name.as_str() == example)
        {
            return Ok(host);
        }
        if let Some(package) = self
            .members()
            .find(|p| p.name.as_str() == name || *p.name.as_str() == example)
        {
            return Err(Failure::Message(format!(
                "package `{}` is not a host package\nhelp: a host package depends on `ifunc-rt`, and has the binaries {}, or names its own: \
                 `[package.metadata.ifunc] target = \"NAME\"` and `source = \"NAME\"`{}",
                package.name,
                HOST_BINS.map(|bin| format!("`{bin}`")).join(", "),
                available(&hosts),
            )));
        }
        Err(Failure::Message(format!(
            "no example or host package is named `{name}`{}",
            available(&hosts)
        )))
    }

    fn only_host<'a>(&self, hosts: &[&'a Package]) -> Result<&'a Package, Failure> {
        let here = std::env::current_dir().unwrap_or_default();
        let around = |host: &&&Package| here.starts_with(directory(host));
        match hosts {
            [] => Err(Failure::Message(format!(
                "the workspace at `{}` has no host package\n{}",
                self.root().display(),
                how_to_start()
            ))),
            [host] => Ok(host),
            several => several.iter().find(around).copied().ok_or_else(|| {
                Failure::Usage(format!(
                    "the workspace has several host packages{}",
                    available(several)
                ))
            }),
        }
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        let members: HashSet<&PackageId> = self.metadata.workspace_members.iter().collect();
        self.metadata
            .packages
            .iter()
            .filter(move |package| members.contains(&package.id))
    }
}

/// The error for a directory without a readable workspace; `stderr` is cargo's text.
pub(crate) fn unreadable(stderr: &str) -> Failure {
    Failure::Metadata(format!(
        "{}\n{}",
        stderr.trim().trim_start_matches("error: "),
        how_to_start()
    ))
}

/// The directory of the manifest of `package`.
pub(crate) fn directory(package: &Package) -> PathBuf {
    package
        .manifest_path
        .parent()
        .map(|dir| dir.as_std_path().to_owned())
        .unwrap_or_default()
}

/// The short name of a host package: `01-hello` for `example-01-hello`.
pub(crate) fn short_name(package: &Package) -> &str {
    let name = package.name.as_str();
    name.strip_prefix("example-").unwrap_or(name)
}

fn available(hosts: &[&Package]) -> String {
    if hosts.is_empty() {
        return format!("\n{}", how_to_start());
    }
    let names: Vec<_> = hosts.iter().map(|host| short_name(host)).collect();
    format!(
        "\nhelp: there are: {}; run one with `cargo ifunc run {}`",
        names.join(", "),
        names[0]
    )
}

fn depends_on(package: &Package, name: &str) -> bool {
    package
        .dependencies
        .iter()
        .any(|dep| dep.kind == DependencyKind::Normal && dep.name == name)
}

fn holds_ifuncs(package: &Package) -> bool {
    let is_own = ifunc_build::is_own_crate(&package.name);
    !is_own && depends_on(package, "ifunc") && !depends_on(package, "ifunc-rt")
}

/// Whether its tests use `ifunc-test`.
fn tests_images(package: &Package) -> bool {
    let dependencies = &mut package.dependencies.iter();
    dependencies.any(|dep| dep.kind == DependencyKind::Development && dep.name == "ifunc-test")
}

fn is_host(package: &Package) -> bool {
    let has = |bin: &&str| binaries(package).any(|name| name == *bin);
    let names = |key: &&str| !package.metadata["ifunc"][*key].is_null();
    depends_on(package, "ifunc-rt") && (HOST_BINS.iter().all(has) || HOST_BINS.iter().any(names))
}

fn binaries(package: &Package) -> impl Iterator<Item = &str> {
    let targets = package.targets.iter().filter(|target| target.is_bin());
    targets.map(|target| target.name.as_str())
}
