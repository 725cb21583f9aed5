//! How the ifunc packages of a workspace are built: one `cargo rustc --crate-type staticlib` per package, whose archive
//! holds the records of its ifuncs and the code that they reach.

mod cargo;
mod diagnose;
mod features;
mod records;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ifunc_abi::Fingerprint;
use ifunc_abi::image::Flags;

use crate::c::{Compiler, arch_of, build_files, imports_of};
use crate::link::{Imports, Input, Linked, Linker, Request, Role};
use crate::names::Names;
use crate::shared::{Library, io};
use crate::{BuildError, BuildOptions, BuiltIfunc, COptions, Cpu, Language, Progress};
use records::{Records, about_text, fingerprint};
use workspace::{Package, Workspace};

/// Name of the folder below the target directory that a profile's libraries go to.
pub(crate) fn folder_of(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        other => other,
    }
}

/// `target/ifunc` of the workspace around the current directory, or of the current directory.
pub(crate) fn target_directory() -> PathBuf {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec();
    let target = match metadata {
        Ok(metadata) => metadata.target_directory.into(),
        Err(_) => std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from),
    };
    target.join("ifunc")
}

/// Builds the ifunc packages of a workspace: Rust ifuncs and the C ifuncs in each package's `c/`.
///
/// An ifunc package is a member with a library target that depends on `ifunc` and not on `ifunc-rt`.
///
/// # Errors
/// The first package that does not build, with every reason found in it.
pub fn build_packages(
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let workspace = Workspace::read(options)?;
    let selected = workspace.select(&options.packages)?;
    let features = features::assign(&options.features, &selected)?;
    let target = options
        .target_dir
        .clone()
        .unwrap_or_else(|| workspace.target_directory.join("ifunc"));
    let folder = target.join(folder_of(&options.profile));
    let building: BTreeSet<&str> = selected.iter().map(|package| &*package.name).collect();
    let others = workspace
        .packages
        .iter()
        .map(|package| package.name.clone())
        .filter(|name| !building.contains(&**name))
        .collect();
    let mut names = Names::beside(&folder, others);
    let mut built = Vec::new();
    for package in selected {
        let before = built.len();
        let asked = features.get(&package.name);
        let archive = cargo::compile(&workspace, package, asked, &target, options, progress)?;
        if let Some(archive) = archive {
            built.extend(build_rust(package, &archive, &mut names, options, progress)?);
        }
        let c_options = COptions {
            cpu: package.cpu_of(options),
            needed: package.needed.clone(),
            cflags: package.c_flags.clone(),
            link_args: package.link_args.clone(),
            verbose: options.verbose,
            color: options.color,
            ..COptions::default()
        };
        let files = package.c_files()?;
        if !files.is_empty() {
            built.extend(build_files(
                &files,
                Some(&package.name),
                &c_options,
                &mut names,
                progress,
            )?);
        }
        names.remove_vanished(&package.name, &built[before..], progress)?;
        if built.len() == before && options.packages.contains(&package.name) {
            return Err(BuildError::NoIfuncs {
                package: package.name.clone(),
                help: "put `#[ifunc]` on a function of its library, or C files into its folder `c/`".into(),
            });
        }
    }
    Ok(built)
}

/// Makes images and libraries out of a package's archive.
fn build_rust(
    package: &Package,
    archive: &Path,
    names: &mut Names,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let data = std::fs::read(archive).map_err(io("read", archive))?;
    let records = Records::read(&data, package)?;
    let file_name = archive.file_name().unwrap_or_default().to_string_lossy();
    let inputs = [Input {
        name: &file_name,
        data: &data,
        role: Role::User,
    }];
    let linker = Linker::open(&inputs)?;
    let compiler = Compiler::new(None);
    let declared: Vec<String> = records.imports.keys().cloned().collect();
    let cpu = package.cpu_of(options);
    let images = link_all(package, &records, cpu, &linker, names, progress)?;
    let mut built = Vec::new();
    for (ifunc, linked) in records.ifuncs.iter().zip(images) {
        let Linked {
            image,
            relocations,
            debug,
        } = linked;
        let about = about_text(ifunc, &imports_of(std::iter::once(&image)), &records.imports);
        let library = Library {
            name: &ifunc.name,
            language: Language::Rust,
            arch: arch_of(&image),
            image: &image,
            about: &about,
            debug: &debug,
            origin: &Names::package_origin(&package.name),
            weaken: declared.clone(),
            linker: &linker,
            link_args: &package.link_args,
            verbose: options.verbose,
        };
        let (path, fresh) = library.make(names.folder(), &compiler, progress)?;
        let result = BuiltIfunc {
            name: ifunc.name.clone(),
            path,
            id: *blake3::hash(&image).as_bytes(),
            image,
            package: Some(package.name.clone()),
            source: package.manifest_path.clone(),
            fresh,
            language: Language::Rust,
            relocations,
        };
        progress.built(&result);
        built.push(result);
    }
    Ok(built)
}

/// The images of a package's ifuncs, in their order, or every reason against any of them.
fn link_all(
    package: &Package,
    records: &Records,
    cpu: Cpu,
    linker: &Linker<'_>,
    names: &mut Names,
    progress: &mut dyn Progress,
) -> Result<Vec<Linked>, BuildError> {
    let declared: BTreeMap<&str, Fingerprint> = records
        .imports
        .iter()
        .map(|(symbol, text)| (&**symbol, fingerprint(text)))
        .collect();
    let mut images = Vec::new();
    let mut errors = Vec::new();
    for ifunc in &records.ifuncs {
        names.claim_rust(&ifunc.name, &package.name)?;
        progress.linking(&ifunc.name);
        let request = Request {
            flags: Flags::NONE
                .with_if(ifunc.idempotent, Flags::IDEMPOTENT)
                .with_if(ifunc.pinned, Flags::PINNED)
                .with_if(ifunc.shared, Flags::SHARED),
            payload: fingerprint(&ifunc.payload),
            target: fingerprint(&ifunc.target),
            answer: fingerprint(&ifunc.answer),
            payload_align: ifunc.align,
            cpu_features: cpu.features(),
            ..Request::new(&ifunc.name, Imports::Declared(declared.clone()))
        };
        match linker.link_explained(&request) {
            Ok(linked) => images.push(linked),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(images)
    } else {
        Err(BuildError::Link { errors })
    }
}
