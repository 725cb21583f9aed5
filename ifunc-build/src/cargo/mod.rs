//! The cargo driver: builds the ifunc packages of a workspace with one `cargo rustc --crate-type staticlib` per
//! package, whose archive holds the records of its ifuncs and the code that they reach.

mod chain;
mod check;
mod command;
mod diagnose;
mod examples;
mod expand;
mod features;
mod lock;
mod records;
mod run;
mod units;
mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ifunc_abi::Fingerprint;
use ifunc_abi::image::EntryFlags;

use crate::c::{Compiler, arch_of, build_files, imports_of};
use crate::names::Names;
use crate::needed;
use crate::shared_library::{LibraryPlan, make_all};
use crate::{BuildError, BuildOptions, BuiltIfunc, COptions, Language, Progress};
use ifunc_link::{Ifunc, Imports, Input, Linked, Linker, Request, Role};
use records::{Records, about_text, fingerprint};
use units::{Archive, BuildPlan, Unit};
use workspace::Package;

pub use check::{CheckOptions, check_packages};
pub use expand::{View, expand_package};

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
    let plan = BuildPlan::read(options)?;
    let mut names = plan.names();
    let compiler = Compiler::new(None);
    let mut built = Vec::new();
    for unit in plan.units(options)? {
        let Unit { package, example } = unit;
        let before = built.len();
        // The C compiler reports its version while cargo compiles.
        let archive = std::thread::scope(|scope| {
            scope.spawn(|| compiler.version());
            plan.archive(unit, options, progress)
        })?;
        if let Some(archive) = archive {
            built.extend(build_rust(
                unit, &archive, &mut names, &compiler, options, progress,
            )?);
        }
        let files = match example {
            None => package.c_files()?,
            Some(_) => Vec::new(),
        };
        if !files.is_empty() {
            built.extend(build_files(
                &files,
                Some(&package.name),
                &c_options(package, options),
                &mut names,
                progress,
            )?);
        }
        names.remove_vanished(&unit.name(), &built[before..], progress)?;
        if built.len() == before && (example.is_some() || options.packages.contains(&package.name)) {
            return Err(no_ifuncs(unit));
        }
    }
    Ok(built)
}

fn no_ifuncs(unit: Unit<'_>) -> BuildError {
    BuildError::NoIfuncs {
        package: unit.name(),
        help: match unit.example {
            Some(example) => format!("put `#[ifunc]` on a function of `{}`", example.path.display()),
            None => "put `#[ifunc]` on a function of its library, or C files into its folder `c/`".into(),
        },
    }
}

/// The options for the C files of a package.
fn c_options(package: &Package, options: &BuildOptions) -> COptions {
    COptions {
        current_dir: package.manifest_path.parent().map(Path::to_owned),
        cpu: package.cpu_of(options),
        needed: package.needed.clone(),
        cflags: package.c_flags.clone(),
        link_args: package.link_args.clone(),
        verbose: options.verbose,
        color: options.color,
        ..COptions::default()
    }
}

/// Makes images and libraries from a package's archive.
fn build_rust(
    unit: Unit<'_>,
    archive: &Archive,
    names: &mut Names,
    compiler: &Compiler,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let package = unit.package;
    let records = Records::read(&archive.data, &unit.name(), Some(unit.crate_name()))?;
    let inputs = [Input {
        name: &archive.name,
        data: &archive.data,
        role: Role::User,
    }];
    let linker = Linker::open(&inputs)?;
    let declared: Vec<String> = records.imports.keys().cloned().collect();
    let images = link_all(unit, &records, options, &linker, names, progress)?;
    let origin = Names::package_origin(&unit.name());
    let libraries: Vec<LibraryPlan<'_, '_>> = records
        .ifuncs
        .iter()
        .zip(&images)
        .map(|(ifunc, linked)| LibraryPlan {
            name: &ifunc.name,
            language: Language::Rust,
            arch: arch_of(&linked.image),
            image: &linked.image,
            about: about_text(
                &records,
                &linked.image,
                &imports_of(std::iter::once(&linked.image)),
            ),
            debug: &linked.debug,
            origin: &origin,
            weaken: declared.clone(),
            linker: &linker,
            link_args: &package.link_args,
            links_cxx: false,
            current_dir: package.manifest_path.parent(),
            verbose: options.verbose,
        })
        .collect();
    let made = make_all(&libraries, names.folder(), compiler, progress)?;
    let mut built = Vec::new();
    for ((ifunc, linked), (path, fresh)) in records.ifuncs.iter().zip(images).zip(made) {
        let result = BuiltIfunc {
            name: ifunc.name.clone(),
            path,
            id: *blake3::hash(&linked.image).as_bytes(),
            image: linked.image,
            package: Some(package.name.clone()),
            source: unit.source().to_owned(),
            fresh,
            language: Language::Rust,
            relocations: linked.relocations,
        };
        progress.built(&result);
        built.push(result);
    }
    Ok(built)
}

/// As [`build_rust`], and writes nothing: names and images.
fn link_archive(
    unit: Unit<'_>,
    archive: &Archive,
    names: &mut Names,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<(String, Linked)>, BuildError> {
    let records = Records::read(&archive.data, &unit.name(), Some(unit.crate_name()))?;
    let linker = Linker::open(&[Input {
        name: &archive.name,
        data: &archive.data,
        role: Role::User,
    }])?;
    let linked = link_all(unit, &records, options, &linker, names, progress)?;
    let all = records.ifuncs.into_iter().map(|ifunc| ifunc.name).zip(linked);
    Ok(all.collect())
}

/// The imports that an archive of rustc declares; `None` for other archives.
pub(crate) fn declared_imports(
    archive: &[u8],
    of: &str,
) -> Result<Option<BTreeMap<String, Fingerprint>>, BuildError> {
    if object::read::archive::ArchiveFile::parse(archive).is_err() {
        return Ok(None);
    }
    let records = Records::read(archive, of, None)?;
    let imports = records.imports.iter();
    let imports = imports.map(|(symbol, text)| (symbol.clone(), fingerprint(text)));
    Ok((!records.ifuncs.is_empty()).then(|| imports.collect()))
}

/// An ifunc as the linker is told of it.
fn requested(ifunc: &records::Ifunc) -> Ifunc<'_> {
    Ifunc {
        name: &ifunc.name,
        flags: EntryFlags::NONE
            .union_if(ifunc.idempotent, EntryFlags::IDEMPOTENT)
            .union_if(ifunc.shared, EntryFlags::SHARED),
        is_pinned: ifunc.pinned,
        payload: fingerprint(&ifunc.payload),
        target: fingerprint(&ifunc.target),
        answer: fingerprint(&ifunc.answer),
        payload_align: ifunc.align,
    }
}

/// The images of a unit's ifuncs, in their order, or every reason against any of them.
fn link_all(
    unit: Unit<'_>,
    records: &Records,
    options: &BuildOptions,
    linker: &Linker<'_>,
    names: &mut Names,
    progress: &mut dyn Progress,
) -> Result<Vec<Linked>, BuildError> {
    let declared: BTreeMap<&str, Fingerprint> = records
        .imports
        .iter()
        .map(|(symbol, text)| (&**symbol, fingerprint(text)))
        .collect();
    let needed = needed::sonames(&unit.package.needed)?;
    let known = records.ifuncs.iter().chain(&records.others);
    let others: Vec<Ifunc<'_>> = known.map(requested).collect();
    let mut images = Vec::new();
    let mut errors = Vec::new();
    for ifunc in &records.ifuncs {
        names.claim_rust(&ifunc.name, &unit.name())?;
        progress.linking(&ifunc.name);
        let request = Request {
            others: others.clone(),
            cpu_features: unit.package.cpu_of(options).features(),
            needed: needed.clone(),
            ..Request::of(requested(ifunc), Imports::Declared(declared.clone()))
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
