//! Checks packages without leaving libraries.

use std::collections::BTreeMap;

use super::command::{Job, Task};
use super::units::{Archive, BuildPlan, Unit};
use super::{Package, c_files, c_options, link_archive, no_ifuncs};
use crate::c::{CompiledFiles, check_files};
use crate::names::Names;
use crate::{BuildError, BuildOptions, Checked, CheckedIfunc, Progress};
use ifunc_link::Linked;

/// The options of [`check_packages`].
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Which packages, with which features, for which CPUs.
    pub build: BuildOptions,
    /// Compile and link as a build does. Without it, Rust is checked without generating code, and errors of the linker
    /// are not found. Cargo compiles in the folder of builds, so that nothing is compiled twice, and a build waits for
    /// the check; images stay in memory.
    pub link: bool,
    /// Cargo's messages go to [`Progress::message`] in this format (`json`, `json-diagnostic-rendered-ansi`).
    pub messages: Option<String>,
}

/// Finds every reason why a build of the ifunc packages of a workspace would fail. Only cargo writes files: in a folder
/// that builds do not use, so that an editor's checks and a build do not wait for each other, and with
/// [`link`](CheckOptions::link) in the folder of builds.
///
/// # Errors
/// The workspace cannot be read or cargo cannot be run. Errors of the packages are in the result.
pub fn check_packages(options: &CheckOptions, progress: &mut dyn Progress) -> Result<Checked, BuildError> {
    let build = &options.build;
    let plan = BuildPlan::read(build)?;
    let mut checked = Checked::default();
    // Packages with the same flags share one run of cargo.
    let mut groups: BTreeMap<_, Vec<&Package>> = BTreeMap::new();
    for package in plan.packages() {
        groups
            .entry((&package.panic, package.cpu_of(build), &package.rust_flags))
            .or_default()
            .push(package);
    }
    let format = options.messages.as_deref().unwrap_or(match build.color {
        crate::Color::Always => "json-diagnostic-rendered-ansi",
        crate::Color::Never => "json",
    });
    for packages in groups.values() {
        packages
            .iter()
            .for_each(|package| progress.compiling(&package.name));
        let job = Job {
            workspace: &plan.workspace,
            packages,
            features: &plan.features,
            target: &plan.target,
            options: build,
            task: Task::Check(format),
            slice: None,
        };
        checked
            .errors
            .extend(job.check(options.messages.is_some(), progress)?);
    }
    if options.link && checked.errors.is_empty() {
        link(&plan, build, &mut checked, progress)?;
    }
    for package in plan.packages() {
        checked.packages.push(package.name.clone());
        let files = package.c_files()?;
        if !files.is_empty() {
            let found = check_files(&files, Some(&package.name), &c_options(package, build), progress);
            checked.add(found);
        }
    }
    Ok(checked)
}

/// Compiles and links the Rust ifuncs.
fn link(
    plan: &BuildPlan,
    options: &BuildOptions,
    checked: &mut Checked,
    progress: &mut dyn Progress,
) -> Result<(), BuildError> {
    let mut names = plan.names();
    for unit in plan.units(options)? {
        let archive = match plan.archive(unit, options, None, progress) {
            Ok(archive) => archive,
            Err(error) => {
                checked.errors.push(error);
                continue;
            }
        };
        let linked = match archive {
            Some(archive) => {
                let c_options = c_options(unit.package, options);
                // An error of these is reported when they are checked themselves.
                match c_files(unit.package, &c_options, names.folder(), progress) {
                    Ok(files) => link_checked(unit, &archive, files.first(), &mut names, options, progress),
                    Err(_) => continue,
                }
            }
            None => Ok(Vec::new()),
        };
        match linked {
            Ok(linked) => {
                let empty = linked.is_empty() && unit.package.c_files()?.is_empty();
                if empty && options.packages.contains(&unit.package.name) {
                    checked.errors.push(no_ifuncs(unit));
                }
                checked
                    .ifuncs
                    .extend(linked.into_iter().map(|(name, linked)| of(unit, name, &linked)));
            }
            Err(error) => checked.errors.push(error),
        }
    }
    Ok(())
}

/// Links the ifuncs of an archive, whose names must not be taken.
fn link_checked(
    unit: Unit<'_>,
    archive: &Archive,
    c_files: Option<&CompiledFiles>,
    names: &mut Names,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<(String, Linked)>, BuildError> {
    let linked = link_archive(unit, archive, c_files, options, progress)?;
    for (name, _) in &linked {
        names.claim_rust(name, &unit.name())?;
    }
    Ok(linked)
}

fn of(unit: Unit<'_>, name: String, linked: &Linked) -> CheckedIfunc {
    CheckedIfunc {
        name,
        package: Some(unit.package.name.clone()),
        source: unit.source().to_owned(),
        image_bytes: linked.image.len(),
    }
}
