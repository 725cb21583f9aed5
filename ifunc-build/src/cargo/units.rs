//! The units of a build: the libraries of packages, or their examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::command::{Job, Task};
use super::features::{self, Features};
use super::workspace::{Example, Package, Workspace};
use super::{examples, folder_of, library_folder, lock};
use crate::names::Names;
use crate::shared_library::io;
use crate::{BuildError, BuildOptions, Cpu, Progress};

/// The library of a package, or an example: one archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit<'a> {
    pub(super) package: &'a Package,
    pub(super) example: Option<&'a Example>,
}

impl<'a> Unit<'a> {
    /// Its name in messages and libraries: `hello-ifuncs`, or `hello-ifuncs example greet`.
    pub(super) fn name(&self) -> String {
        match self.example {
            None => self.package.name.clone(),
            Some(example) => format!("{} example {}", self.package.name, example.name),
        }
    }

    /// The crate that defines its ifuncs.
    pub(super) fn crate_name(&self) -> &'a str {
        match self.example {
            None => &self.package.crate_name,
            Some(example) => &example.crate_name,
        }
    }

    /// Its source.
    pub(super) fn source(&self) -> &'a Path {
        match self.example {
            None => &self.package.manifest_path,
            Some(example) => &example.path,
        }
    }
}

/// The archive of a unit.
pub(super) struct Archive {
    /// Its file's name, for messages.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// A build: workspace, packages and folders.
#[derive(Debug)]
pub(super) struct BuildPlan {
    pub(super) workspace: Workspace,
    /// Indices of the selected packages.
    selected: Vec<usize>,
    pub(super) features: Features,
    /// The folder that cargo builds in.
    pub(super) target: PathBuf,
    /// The folder of the libraries.
    folder: PathBuf,
    /// Names of the units that are built.
    building: BTreeSet<String>,
}

impl BuildPlan {
    /// Reads the workspace from cargo.
    pub(super) fn read(options: &BuildOptions) -> Result<Self, BuildError> {
        let workspace = Workspace::read(options)?;
        let selected = workspace.select(&options.packages)?;
        let features = features::assign(&options.features, &selected)?;
        let target = options
            .target_dir
            .clone()
            .unwrap_or_else(|| workspace.target_directory.join("ifunc"));
        let mut plan = Self {
            selected: selected
                .iter()
                .filter_map(|package| workspace.packages.iter().position(|p| p.id == package.id))
                .collect(),
            features,
            folder: library_folder(&target, options.triple.as_deref(), &options.profile),
            target,
            building: BTreeSet::new(),
            workspace,
        };
        plan.building = plan.units(options)?.iter().map(Unit::name).collect();
        Ok(plan)
    }

    /// The selected packages.
    pub(super) fn packages(&self) -> Vec<&Package> {
        self.selected
            .iter()
            .map(|index| &self.workspace.packages[*index])
            .collect()
    }

    /// The units, in order.
    pub(super) fn units(&self, options: &BuildOptions) -> Result<Vec<Unit<'_>>, BuildError> {
        let packages = self.packages();
        if options.examples.is_empty() {
            let library = |package| Unit {
                package,
                example: None,
            };
            return Ok(packages.into_iter().map(library).collect());
        }
        let found = examples::find(&options.examples, &packages)?;
        let unit = |(package, example)| Unit {
            package,
            example: Some(example),
        };
        Ok(found.into_iter().map(unit).collect())
    }

    /// The names in the folder of the libraries, and the units that this build does not build.
    pub(super) fn names(&self) -> Names {
        let all = self.workspace.packages.iter().flat_map(|package| {
            let examples = package.examples.iter().map(Some);
            std::iter::once(None)
                .chain(examples)
                .map(move |example| Unit { package, example }.name())
        });
        let others = all.filter(|name| !self.building.contains(name)).collect();
        Names::beside(&self.folder, others)
    }

    /// Compiles a unit to an archive, if it has Rust ifuncs. `slice`: the level of a slice that is not the first.
    ///
    /// Builds with other flags write the same file, and cargo releases its lock before the file is read: the builder
    /// holds its own lock meanwhile.
    pub(super) fn archive(
        &self,
        unit: Unit<'_>,
        options: &BuildOptions,
        slice: Option<Cpu>,
        progress: &mut dyn Progress,
    ) -> Result<Option<Archive>, BuildError> {
        let lock = self.target.join(format!(".{}.lock", folder_of(&options.profile)));
        let _lock = lock::acquire(&lock, progress)?;
        let wrapper;
        let task = match unit.example {
            None => Task::Library,
            Some(example) => {
                wrapper = match example.library {
                    true => PathBuf::new(),
                    false => examples::wrapper(&self.target)?,
                };
                Task::Example(example, &wrapper)
            }
        };
        let job = Job {
            workspace: &self.workspace,
            packages: &[unit.package],
            features: &self.features,
            target: &self.target,
            options,
            task,
            slice,
        };
        let Some(path) = job.compile(progress)? else {
            return Ok(None);
        };
        let data = std::fs::read(&path).map_err(io("read", &path))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Some(Archive { name, data }))
    }
}
