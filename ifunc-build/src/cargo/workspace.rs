//! The ifunc packages of a workspace, and the settings in their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cargo_metadata::{CrateType, DependencyKind, Metadata, MetadataCommand, PackageId, TargetKind};

use super::flags;
use crate::needed;
use crate::shared_library::io;
use crate::triple::Triple;
use crate::{BuildError, BuildOptions, Cpu, is_own_crate};

/// What a panicking ifunc reports, if its package does not say.
const PANIC_POLICY: &str = "message";
/// What it may report.
const PANIC_POLICIES: [&str; 3] = ["message", "location", "minimal"];

/// The keys of `[package.metadata.ifunc]`.
const KEYS: [&str; 7] = [
    "panic",
    "cpu",
    "needed",
    "cfg",
    "rustflags",
    "cflags",
    "link-args",
];

/// An ifunc package.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) id: PackageId,
    pub(super) name: String,
    /// Name of its library crate, with underscores.
    pub(super) crate_name: String,
    pub(super) manifest_path: PathBuf,
    /// Its examples, which may hold ifuncs of their own.
    pub(super) examples: Vec<Example>,
    pub(super) features: BTreeSet<String>,
    /// Its dependencies, by the names that it uses.
    pub(super) dependencies: BTreeSet<String>,
    /// `[package.metadata.ifunc] panic`.
    pub(super) panic: String,
    /// `[package.metadata.ifunc] cpu`: the least CPU that its code is built for, and those of more slices. Of the names there, those
    /// of the architecture that is built for count.
    pub(super) cpu: Cpu,
    pub(super) slices: Vec<Cpu>,
    /// `[package.metadata.ifunc] needed`: sonames of shared libraries that its ifuncs need on the target.
    pub(super) needed: Vec<String>,
    /// `[package.metadata.ifunc] cfg` and `rustflags`: more arguments for the Rust compiler, checked.
    pub(super) rust_flags: Vec<String>,
    /// `[package.metadata.ifunc] cflags`: more arguments for the C compiler.
    pub(super) c_flags: Vec<String>,
    /// `[package.metadata.ifunc] link-args`: more arguments for the link of the source's libraries.
    pub(super) link_args: Vec<String>,
}

/// An example of an ifunc package.
#[derive(Clone, Debug)]
pub(super) struct Example {
    pub(super) name: String,
    pub(super) crate_name: String,
    pub(super) path: PathBuf,
    /// The manifest declares it as a library.
    pub(super) library: bool,
}

/// The workspace, as cargo reports it.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) target_directory: PathBuf,
    /// The target triple that is compiled for.
    pub(super) triple: Triple,
    /// The ifunc packages, by name.
    pub(super) packages: Vec<Package>,
    /// The names of its other members, and why they are no ifunc packages.
    others: BTreeMap<String, &'static str>,
    /// Directories whose names must not appear in images: the parents of packages from elsewhere.
    pub(super) foreign: BTreeSet<PathBuf>,
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub(super) fn read(options: &BuildOptions) -> Result<Self, BuildError> {
        let mut command = MetadataCommand::new();
        if let Some(directory) = &options.current_dir {
            command.current_dir(directory);
        }
        if let Some(manifest) = &options.manifest_path {
            command.manifest_path(manifest);
        }
        let mut flags = Vec::new();
        if options.locked {
            flags.push("--locked".to_owned());
        }
        if options.offline {
            flags.push("--offline".to_owned());
        }
        command.other_options(flags);
        // Both commands run at the same time: neither depends on the other, and together they would take as long as
        // compiling.
        let (metadata, triple) = std::thread::scope(|scope| {
            let triple = scope.spawn(|| match &options.triple {
                Some(triple) => Triple::new(triple),
                None => super::command::host_target(options).map(|host| Triple::of_compiler(&host)),
            });
            (command.exec(), triple.join())
        });
        let metadata = metadata.map_err(|e| match e {
            cargo_metadata::Error::CargoMetadata { stderr } => BuildError::Metadata(stderr.trim_end().into()),
            other => BuildError::Metadata(other.to_string()),
        })?;
        let triple = triple.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Self::from_metadata(&metadata, triple)
    }

    fn from_metadata(metadata: &Metadata, triple: Triple) -> Result<Self, BuildError> {
        let mut packages = Vec::new();
        let mut others = BTreeMap::new();
        for package in metadata.workspace_packages() {
            match library_with_ifuncs(package) {
                Ok(library) => packages.push(ifunc_package(package, library, triple.arch())?),
                Err(why) => drop(others.insert(package.name.to_string(), why)),
            }
        }
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        let root = &metadata.workspace_root;
        let foreign = metadata
            .packages
            .iter()
            .filter(|package| !package.manifest_path.starts_with(root))
            .filter_map(|package| package.manifest_path.parent()?.parent())
            .map(|path| path.as_std_path().to_owned())
            .collect();
        Ok(Self {
            target_directory: metadata.target_directory.clone().into(),
            triple,
            packages,
            others,
            foreign,
        })
    }

    /// The packages of these names; all if there are no names.
    pub(super) fn select(&self, names: &[String]) -> Result<Vec<&Package>, BuildError> {
        if names.is_empty() {
            return Ok(self.packages.iter().collect());
        }
        let wanted: BTreeSet<&String> = names.iter().collect();
        wanted
            .into_iter()
            .map(|name| {
                self.packages
                    .iter()
                    .find(|package| package.name == *name)
                    .ok_or_else(|| {
                        let known: Vec<_> = self.packages.iter().map(|p| format!("`{}`", p.name)).collect();
                        let known = if known.is_empty() {
                            "none".into()
                        } else {
                            known.join(", ")
                        };
                        let name = name.clone();
                        match self.others.get(&name) {
                            Some(why) => BuildError::NotAnIfuncPackage { name, why, known },
                            None => BuildError::UnknownPackage { name, known },
                        }
                    })
            })
            .collect()
    }
}

impl Package {
    /// The CPU that the package is built for, with these options or as a slice of them.
    pub(super) fn cpu_of(&self, options: &BuildOptions) -> Cpu {
        options.cpu.for_code_of(self.cpu, &self.slices)
    }

    /// The CPUs that it is built for, one for each slice of its libraries: the first is that of these options.
    pub(super) fn cpus(&self, options: &BuildOptions, more: impl IntoIterator<Item = Cpu>) -> Vec<Cpu> {
        let more = more
            .into_iter()
            .map(|cpu| cpu.for_code_of(self.cpu, &self.slices));
        self.cpu_of(options)
            .of_slices(more.chain(self.slices.iter().copied()))
    }

    /// What it sets of the compiler's flags, for a further slice of this CPU; `None`: nothing.
    pub(super) fn own_flags(&self, slice: Option<Cpu>) -> Option<String> {
        let cpu = slice.unwrap_or(self.cpu);
        let is_plain = self.panic == PANIC_POLICY && cpu.features() == 0 && self.rust_flags.is_empty();
        let flags = || format!("{} {} {:?}", self.panic, cpu, self.rust_flags);
        (!is_plain).then(flags)
    }

    /// The C and C++ files of the package, by name.
    pub(super) fn c_files(&self) -> Result<Vec<PathBuf>, BuildError> {
        let folder = self.manifest_path.with_file_name("c");
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(io("read", &folder)(e)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(io("read", &folder))?.path();
            if crate::is_c_source(&path) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

/// The library of a package, if it is an ifunc package; otherwise what makes it another one.
fn library_with_ifuncs(package: &cargo_metadata::Package) -> Result<&cargo_metadata::Target, &'static str> {
    let depends_on = |name: &str| {
        package
            .dependencies
            .iter()
            .any(|d| d.name == name && d.kind == DependencyKind::Normal)
    };
    let library = package.targets.iter().find(|target| {
        target.kind.iter().any(|kind| {
            matches!(
                kind,
                TargetKind::Lib
                    | TargetKind::RLib
                    | TargetKind::StaticLib
                    | TargetKind::CDyLib
                    | TargetKind::DyLib
            )
        })
    });
    if is_own_crate(&package.name) {
        return Err("it is a crate of ifunc itself");
    }
    if depends_on("ifunc-rt") {
        return Err("it depends on `ifunc-rt`, as a host package does");
    }
    if !depends_on("ifunc") {
        return Err("it does not depend on `ifunc`");
    }
    library.ok_or("it has no library")
}

/// The settings of an ifunc package.
fn ifunc_package(
    package: &cargo_metadata::Package,
    library: &cargo_metadata::Target,
    arch: u16,
) -> Result<Package, BuildError> {
    let table = &package.metadata["ifunc"];
    let error = |reason: String| BuildError::Manifest {
        package: package.name.to_string(),
        reason,
    };
    let panic = match &table["panic"] {
        serde_json::Value::Null => PANIC_POLICY.to_owned(),
        serde_json::Value::String(policy) if PANIC_POLICIES.contains(&&**policy) => policy.clone(),
        other => {
            return Err(error(format!(
                "`panic = {other}` is not one of \"message\", \"location\" and \"minimal\""
            )));
        }
    };
    let cpus = match &table["cpu"] {
        serde_json::Value::Null => &[],
        serde_json::Value::Array(all) => &all[..],
        one => std::slice::from_ref(one),
    };
    let cpus = cpus.iter().map(cpu).collect::<Result<Vec<Cpu>, _>>();
    let mut cpus = cpus.map_err(error)?;
    cpus.retain(|cpu| cpu.arch() == arch);
    cpus.sort_by_key(|cpu| cpu.features().count_ones());
    let cpu = cpus.first().copied().unwrap_or(Cpu::baseline(arch));
    let strings = |key: &str| match &table[key] {
        serde_json::Value::Null => Ok(Vec::new()),
        serde_json::Value::Array(list) => list
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| error(format!("`{key}` is not a list of strings"))),
        _ => Err(error(format!("`{key}` is not a list of strings"))),
    };
    if let Some(unknown) = table
        .as_object()
        .and_then(|t| t.keys().find(|k| !KEYS.contains(&k.as_str())))
    {
        let keys = KEYS.map(|key| format!("`{key}`")).join(", ");
        return Err(error(format!(
            "unknown key `{unknown}`\nhelp: the keys are {keys}"
        )));
    }
    let needed = strings("needed")?;
    needed::sonames(&needed).map_err(|e| error(e.to_string()))?;
    let mut rust_flags = flags::of_cfg(&strings("cfg")?).map_err(error)?;
    rust_flags.extend(flags::of_rustflags(&strings("rustflags")?).map_err(error)?);
    let examples = package.targets.iter().filter(|target| target.is_example());
    Ok(Package {
        id: package.id.clone(),
        examples: examples.map(example).collect(),
        name: package.name.to_string(),
        crate_name: library.name.replace('-', "_"),
        manifest_path: package.manifest_path.clone().into(),
        features: package.features.keys().cloned().collect(),
        dependencies: package
            .dependencies
            .iter()
            .map(|d| d.rename.as_ref().unwrap_or(&d.name).clone())
            .collect(),
        panic,
        cpu,
        slices: cpus,
        needed,
        rust_flags,
        c_flags: strings("cflags")?,
        link_args: strings("link-args")?,
    })
}

/// One setting of `cpu`.
fn cpu(setting: &serde_json::Value) -> Result<Cpu, String> {
    let known = setting.as_str().and_then(Cpu::from_name);
    known.ok_or_else(|| format!("`cpu = {setting}` is no CPU\nhelp: {}", Cpu::known()))
}

fn example(target: &cargo_metadata::Target) -> Example {
    Example {
        name: target.name.clone(),
        crate_name: target.name.replace('-', "_"),
        path: target.src_path.clone().into(),
        library: !target.crate_types.contains(&CrateType::Bin),
    }
}
