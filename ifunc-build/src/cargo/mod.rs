//! The cargo driver: builds the ifunc packages of a workspace with one `cargo rustc --crate-type staticlib` per
//! package, whose archive holds the records of its ifuncs and the code that they reach.

mod chain;
mod check;
mod command;
mod diagnose;
mod examples;
mod expand;
mod features;
mod flags;
mod lock;
mod records;
mod run;
mod units;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ifunc_abi::Fingerprint;
use ifunc_abi::image::EntryFlags;
use ifunc_abi::symbols::COMPILER_IMPORTS;

use crate::c::{CompiledFiles, Compiler, arch_of, build_files, imports_of, slice_of};
use crate::names::Names;
use crate::needed;
use crate::shared_library::{LibraryPlan, make_all};
use crate::slices::{SlicesOfTriple, by_triple};
use crate::{BuildError, BuildOptions, BuiltIfunc, BuiltSlice, COptions, Cpu, Language, Progress, Slice};
use ifunc_link::{Ifunc, Imports, Input, Linked, Linker, Request, Role};
use records::{Records, about_text, is_variable};
use units::{Archive, BuildPlan, Unit};
use workspace::Package;

pub use check::{CheckOptions, check_packages};
pub use expand::{View, expand_package};
pub(crate) use records::fingerprint;

/// How the folders below the target directory begin in which packages with flags of their own are compiled.
pub(crate) const OWN_FLAGS: &str = "flags-";

/// Name of the folder below the target directory that a profile's libraries go to.
pub(crate) fn folder_of(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        other => other,
    }
}

/// The folder of the libraries: that of the profile, and with a target triple, a folder of the triple's name around it.
pub(crate) fn library_folder(target: &Path, triple: Option<&str>, profile: &str) -> PathBuf {
    let target = triple.map_or_else(|| target.to_owned(), |triple| target.join(triple));
    target.join(folder_of(profile))
}

/// `target/ifunc` of the workspace around the current directory, or of the current directory. Runs `cargo metadata`.
#[must_use]
pub fn target_directory() -> PathBuf {
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
    let triple = &plan.workspace.triple;
    let compiler = Compiler::new(None, options.triple.as_ref().map(|_| triple))?;
    let others = other_plans(options)?;
    let mut built = Vec::new();
    for unit in plan.units(options)? {
        let Unit { package, example } = unit;
        let before = built.len();
        let slices = further_slices(&plan, &others, unit, options)?;
        let c_options = COptions {
            slices: slices.iter().map(|slice| slice.machine.clone()).collect(),
            ..c_options(package, options)
        };
        let c_files = c_files(package, &c_options, names.folder(), progress)?;
        // The C compiler reports its version while cargo compiles.
        let archive = std::thread::scope(|scope| {
            scope.spawn(|| compiler.version());
            plan.archive(unit, options, None, progress)
        })?;
        if let Some(archive) = archive {
            let first = RustSlice {
                archive,
                c_files: c_files.first(),
                options: options.clone(),
            };
            let mut further = Vec::new();
            for (index, slice) in (1..).zip(slices) {
                let archive = slice
                    .plan
                    .archive(slice.unit, &slice.options, slice.own, progress)?;
                further.extend(archive.map(|archive| {
                    let c_files = c_files.get(index);
                    let options = slice.options;
                    let parts = RustSlice {
                        archive,
                        c_files,
                        options,
                    };
                    (slice.unit, parts)
                }));
            }
            built.extend(build_rust(
                unit, &first, &further, &mut names, &compiler, progress,
            )?);
        }
        if example.is_none() {
            built.extend(build_files(
                &c_files,
                Some(&package.name),
                &c_options,
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

/// A plan for the slices of another triple.
struct OtherPlan {
    plan: BuildPlan,
    options: BuildOptions,
    cpus: Vec<Cpu>,
}

/// The plans for the triples of further slices, beside that of the first slice.
fn other_plans(options: &BuildOptions) -> Result<Vec<OtherPlan>, BuildError> {
    let all = by_triple(&options.slices, options.triple.as_deref());
    let others = all.into_iter().filter(|slices| slices.triple.is_some());
    let plans = others.map(|SlicesOfTriple { triple, mut cpus }| {
        cpus.sort_by_key(|cpu| cpu.features().count_ones());
        let options = options.at(triple, cpus.first().copied().unwrap_or_default());
        Ok(OtherPlan {
            plan: BuildPlan::read(&options)?,
            options,
            cpus,
        })
    });
    plans.collect()
}

/// A slice of a unit that is not the first.
struct FurtherSlice<'p> {
    machine: Slice,
    plan: &'p BuildPlan,
    unit: Unit<'p>,
    options: BuildOptions,
    /// Its CPU, if it is compiled beside another slice of its triple.
    own: Option<Cpu>,
}

/// The further slices of a unit: those of the first slice's triple, and those of others.
fn further_slices<'p>(
    plan: &'p BuildPlan,
    others: &'p [OtherPlan],
    unit: Unit<'p>,
    options: &BuildOptions,
) -> Result<Vec<FurtherSlice<'p>>, BuildError> {
    let mut all = Vec::new();
    let mut add = |plan: &'p BuildPlan, unit: Unit<'p>, options: &BuildOptions, cpus: &[Cpu], skip: usize| {
        let cpus = unit.package.cpus(options, cpus.iter().copied());
        for (index, cpu) in cpus.into_iter().enumerate().skip(skip) {
            all.push(FurtherSlice {
                machine: Slice {
                    triple: options.triple.clone(),
                    cpu,
                },
                plan,
                unit,
                options: options.at(None, cpu),
                own: (index > 0).then_some(cpu),
            });
        }
    };
    let own = by_triple(&options.slices, options.triple.as_deref());
    add(plan, unit, options, &own[0].cpus, 1);
    for other in others {
        let units = other.plan.units(&other.options)?;
        let unit = units.into_iter().find(|known| known.name() == unit.name());
        if let Some(unit) = unit {
            add(&other.plan, unit, &other.options, &other.cpus, 0);
        }
    }
    Ok(all)
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

/// The files of a package's folder `c`, compiled for each slice; nothing if there are none. They hold ifuncs, and functions that the
/// package's ifuncs in Rust may call.
fn c_files(
    package: &Package,
    options: &COptions,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<Vec<CompiledFiles>, BuildError> {
    let files = package.c_files()?;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    CompiledFiles::of_slices(&files, options, folder, progress)
}

/// The options for the C files of a package.
fn c_options(package: &Package, options: &BuildOptions) -> COptions {
    COptions {
        current_dir: package.manifest_path.parent().map(Path::to_owned),
        triple: options.triple.clone(),
        cpu: package.cpu_of(options),
        needed: package.needed.clone(),
        cflags: package.c_flags.clone(),
        link_args: package.link_args.clone(),
        verbose: options.verbose,
        color: options.color,
        ..COptions::default()
    }
}

/// What a slice of a package's libraries is made of.
struct RustSlice<'a> {
    archive: Archive,
    c_files: Option<&'a CompiledFiles>,
    options: BuildOptions,
}

impl RustSlice<'_> {
    /// Names and images.
    fn link(&self, unit: Unit<'_>, progress: &mut dyn Progress) -> Result<Vec<(String, Linked)>, BuildError> {
        link_archive(unit, &self.archive, self.c_files, &self.options, progress)
    }
}

/// Makes images and libraries of a package. The libraries' own code is of the first slice.
fn build_rust(
    unit: Unit<'_>,
    first: &RustSlice<'_>,
    others: &[(Unit<'_>, RustSlice<'_>)],
    names: &mut Names,
    compiler: &Compiler,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let package = unit.package;
    let RustSlice {
        archive,
        c_files,
        options,
    } = first;
    let c_files = *c_files;
    let records = Records::read(&archive.data, &unit.name(), Some(unit.crate_name()))?;
    claim(&records, unit, names)?;
    let linker = Linker::open(&inputs_of(archive, c_files))?;
    let images = link_all(unit, &records, c_files, options, &linker, progress)?;
    let mut other_images: Vec<BTreeMap<String, Linked>> = Vec::new();
    for (unit, other) in others {
        other_images.push(other.link(*unit, progress)?.into_iter().collect());
    }
    let mut all_slices = Vec::new();
    for (ifunc, linked) in records.ifuncs.iter().zip(&images) {
        let mut slices = vec![linked];
        for images in &other_images {
            slices.push(slice_of(&ifunc.name, images.get(&ifunc.name))?);
        }
        all_slices.push(slices);
    }
    let mut weaken: Vec<String> = records.imports.keys().cloned().collect();
    if c_files.is_some() {
        let mut of_c = imports_of(images.iter().map(|linked| &linked.image));
        of_c.retain(|symbol| !records.imports.contains_key(symbol) && !COMPILER_IMPORTS.contains(&&**symbol));
        weaken.extend(of_c);
    }
    let origin = Names::package_origin(&unit.name());
    let libraries: Vec<LibraryPlan<'_, '_>> = records
        .ifuncs
        .iter()
        .zip(&all_slices)
        .map(|(ifunc, slices)| LibraryPlan {
            name: &ifunc.name,
            language: Language::Rust,
            arch: arch_of(&slices[0].image),
            about: about_text(
                &records,
                &slices[0].image,
                &imports_of(slices.iter().map(|linked| &linked.image)),
            ),
            slices: slices.clone(),
            origin: origin.clone(),
            weaken: weaken.clone(),
            linker: &linker,
            link_args: &package.link_args,
            links_cxx: c_files.is_some_and(CompiledFiles::has_cxx),
            current_dir: package.manifest_path.parent(),
            verbose: options.verbose,
        })
        .collect();
    let made = make_all(&libraries, names.folder(), compiler, progress)?;
    let mut built = Vec::new();
    for ((ifunc, slices), (path, fresh)) in records.ifuncs.iter().zip(&all_slices).zip(made) {
        let linked = slices[0];
        let result = BuiltIfunc {
            name: ifunc.name.clone(),
            path,
            id: *blake3::hash(&linked.image).as_bytes(),
            image: linked.image.clone(),
            other_slices: slices[1..].iter().map(|linked| BuiltSlice::new(linked)).collect(),
            package: Some(package.name.clone()),
            source: unit.source().to_owned(),
            fresh,
            language: Language::Rust,
            relocations: linked.relocations.clone(),
        };
        progress.built(&result);
        built.push(result);
    }
    Ok(built)
}

/// What the ifuncs of a package are linked from.
fn inputs_of<'a>(archive: &'a Archive, c_files: Option<&'a CompiledFiles>) -> Vec<Input<'a>> {
    let mut inputs = vec![Input {
        name: &archive.name,
        data: &archive.data,
        role: Role::User,
    }];
    inputs.extend(c_files.map(CompiledFiles::helpers).into_iter().flatten());
    inputs
}

/// Claims the names of a unit's ifuncs.
fn claim(records: &Records, unit: Unit<'_>, names: &mut Names) -> Result<(), BuildError> {
    let mut ifuncs = records.ifuncs.iter();
    ifuncs.try_for_each(|ifunc| names.claim_rust(&ifunc.name, &unit.name()))
}

/// As [`build_rust`], of one slice, and writes nothing: names and images.
fn link_archive(
    unit: Unit<'_>,
    archive: &Archive,
    c_files: Option<&CompiledFiles>,
    options: &BuildOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<(String, Linked)>, BuildError> {
    let records = Records::read(&archive.data, &unit.name(), Some(unit.crate_name()))?;
    let linker = Linker::open(&inputs_of(archive, c_files))?;
    let linked = link_all(unit, &records, c_files, options, &linker, progress)?;
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
    c_files: Option<&CompiledFiles>,
    options: &BuildOptions,
    linker: &Linker<'_>,
    progress: &mut dyn Progress,
) -> Result<Vec<Linked>, BuildError> {
    let declared: BTreeMap<&str, Fingerprint> = records
        .imports
        .iter()
        .map(|(symbol, text)| (&**symbol, fingerprint(text)))
        .collect();
    let variables = records.imports.iter().filter(|(_, text)| is_variable(text));
    let variables = variables.map(|(symbol, _)| &**symbol);
    // If Rust declares a symbol, C's declaration of it does not count.
    let of_c = c_files.into_iter().flat_map(CompiledFiles::variables);
    let of_c = of_c.filter(|symbol| !records.imports.contains_key(*symbol));
    let variables: BTreeSet<&str> = variables.chain(of_c).collect();
    let needed = needed::sonames(&unit.package.needed)?;
    let known = records.ifuncs.iter().chain(&records.others);
    let others: Vec<Ifunc<'_>> = known.map(requested).collect();
    let mut images = Vec::new();
    let mut errors = Vec::new();
    for ifunc in &records.ifuncs {
        progress.linking(&ifunc.name);
        let request = Request {
            others: others.clone(),
            cpu_features: unit.package.cpu_of(options).features(),
            needed: needed.clone(),
            variables: variables.clone(),
            helpers_cpu_features: c_files.map_or(0, |files| files.cpu_features),
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
