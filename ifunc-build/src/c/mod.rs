//! The C driver: one ifunc per `X_main`, in C or C++.

mod batch;
mod check;
mod choice;
mod compiler;
mod cpu;
mod ifuncs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ifunc_abi::image::{EntryFlags, Image};
use ifunc_abi::symbols::COMPILER_IMPORTS;

use crate::names::Names;
use crate::needed;
use crate::shared_library::{LibraryPlan, io, make_all};
use crate::triple::Triple;
use crate::{BuildError, BuiltIfunc, BuiltSlice, COptions, Checked, Language, Progress};
pub(crate) use check::check_files;
pub(crate) use choice::compiles_for_all;
pub(crate) use compiler::Compiler;
use ifunc_link::{Ifunc, Imports, Input, Linked, Linker, Request, Role};
use ifuncs::CIfunc;

/// Alignment of the payload of a C ifunc: that of `malloc`.
const PAYLOAD_ALIGN: u32 = 16;

/// Builds every ifunc of the C and C++ files. Files without an `X_main` are helpers: they are linked into the ifuncs of the
/// other files. Definitions in a file with ifuncs are available to the other files too; an image holds only what its
/// entry reaches.
///
/// # Errors
/// The first file that does not build.
pub fn build_c(
    files: &[PathBuf],
    options: &COptions,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let target = match &options.target_dir {
        Some(target) => target.clone(),
        None => crate::cargo::target_directory(),
    };
    let folder = crate::cargo::library_folder(&target, options.triple.as_deref(), &options.profile);
    let mut names = Names::beside_packages(&folder);
    let compiled = CompiledFiles::of_slices(files, options, names.folder(), progress)?;
    let built = build_files(&compiled, None, options, &mut names, progress)?;
    if built.is_empty() {
        return Err(no_ifunc(files));
    }
    Ok(built)
}

/// Finds every reason why a build of C files (`.c`), relocatable objects (`.o`) and archives (`.a`) would fail:
/// compiles and links them together in memory, once for each `X_main`, and writes no file.
pub fn check_c(files: &[PathBuf], options: &COptions, progress: &mut dyn Progress) -> Checked {
    check::check_files(files, None, options, progress)
}

/// The C compiler that builds for a target triple, as it is called: chosen as [`build_c`] does.
///
/// # Errors
/// No image can be for the triple, the compiler does not start, or the environment names one for another machine.
pub fn c_compiler_for(triple: &str) -> Result<String, BuildError> {
    let compiler = Compiler::new(None, Some(&Triple::new(triple)?))?;
    let started = compiler.command().arg("--version").output();
    match started {
        Ok(_) => Ok(compiler.name()),
        Err(error) => Err(compiler.spawn_error(error)),
    }
}

fn no_ifunc(files: &[PathBuf]) -> BuildError {
    BuildError::CIfunc {
        file: files.first().cloned().unwrap_or_default(),
        reason: "no ifunc is there".into(),
        help: "an ifunc `X` is three functions: `X_payload_bound`, `X_payload_init` and `X_main`; none may be `static`, and in C++ each is `extern \"C\"`"
            .into(),
    }
}

/// Whether a file is a source that [`build_c`] compiles: C (`.c`) or C++ (`.cpp`, `.cc`, `.cxx`).
#[must_use]
pub fn is_c_source(file: &Path) -> bool {
    is_cxx(file) || file.extension().is_some_and(|extension| extension == "c")
}

/// Whether it is C++.
fn is_cxx(file: &Path) -> bool {
    let known = ["cpp", "cc", "cxx"];
    file.extension()
        .is_some_and(|extension| known.iter().any(|known| extension == *known))
}

/// A compiled file.
struct CompiledFile {
    file: PathBuf,
    object: Vec<u8>,
    ifuncs: Vec<ifuncs::CIfunc>,
    /// The imports that it declares as variables.
    variables: Vec<String>,
    /// The functions that run batches of its ifuncs; empty without ifuncs.
    batches: Vec<u8>,
}

/// The C and C++ files of a build, compiled.
pub(crate) struct CompiledFiles {
    units: Vec<CompiledFile>,
    /// Names of the objects, for messages.
    shown: Vec<String>,
    compiler: Compiler,
    /// The compiler's support library.
    support: Vec<u8>,
    pub(crate) cpu_features: u64,
}

impl CompiledFiles {
    /// Compiles files that belong together. `folder`: of the libraries.
    pub(crate) fn new(
        files: &[PathBuf],
        options: &COptions,
        folder: &Path,
        progress: &mut dyn Progress,
    ) -> Result<Self, BuildError> {
        let mut compiler = Compiler::of(options)?;
        compiler.write_headers(folder)?;
        let mut units = Vec::new();
        for file in files {
            std::fs::metadata(file).map_err(io("read", file))?;
            progress.compiling(&file.display().to_string());
            let object = compiler.compile(file, options, progress)?;
            let ifuncs = ifuncs::find(file, &object)?;
            let batches = batch::compile(&compiler, file, &ifuncs, options, progress)?;
            units.push(CompiledFile {
                file: file.clone(),
                variables: ifuncs::variables(&object),
                object,
                ifuncs,
                batches,
            });
        }
        let support = match compiler.support_library() {
            Some(path) => std::fs::read(path).unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(Self {
            shown: shown(&units),
            units,
            support,
            cpu_features: compiler.cpu_features(options)?,
            compiler,
        })
    }

    /// Compiles files for each slice, the first one first.
    pub(crate) fn of_slices(
        files: &[PathBuf],
        options: &COptions,
        folder: &Path,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Self>, BuildError> {
        let slices = options.of_slices();
        let compiled = slices
            .iter()
            .map(|options| Self::new(files, options, folder, progress));
        compiled.collect()
    }

    /// The objects as inputs of ifuncs in Rust, which may call their functions.
    pub(crate) fn helpers(&self) -> Vec<Input<'_>> {
        let objects = self.units.iter().zip(&self.shown).map(|(unit, name)| Input {
            name,
            data: &unit.object,
            role: Role::Helper,
        });
        objects.chain(support_input(&self.support)).collect()
    }

    /// The imports that they declare as variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let variables = self.units.iter().flat_map(|unit| &unit.variables);
        variables.map(|symbol| &**symbol)
    }

    /// Whether one of them is in C++.
    pub(crate) fn has_cxx(&self) -> bool {
        self.units.iter().any(|unit| is_cxx(&unit.file))
    }
}

/// Builds every ifunc of the files, which were compiled for each slice.
pub(crate) fn build_files(
    slices: &[CompiledFiles],
    package: Option<&str>,
    options: &COptions,
    names: &mut Names,
    progress: &mut dyn Progress,
) -> Result<Vec<BuiltIfunc>, BuildError> {
    let Some((files, others)) = slices.split_first() else {
        return Ok(Vec::new());
    };
    for unit in &files.units {
        for ifunc in &unit.ifuncs {
            names.claim_c(&ifunc.name, &unit.file)?;
        }
    }
    let linked = link_files(files, options, progress)?;
    let mut other_images = Vec::new();
    for files in others {
        let units = link_files(files, options, progress)?;
        let images = units.into_iter().flat_map(|unit| unit.images);
        other_images.push(images.collect::<BTreeMap<String, Linked>>());
    }
    let mut libraries = Vec::new();
    let mut built = Vec::new();
    for LinkedUnit {
        unit,
        linker,
        images,
        weaken,
    } in &linked
    {
        let origin = Names::c_origin(package, &unit.file);
        for ifunc in &unit.ifuncs {
            let first = &images[&ifunc.name];
            let mut slices = vec![first];
            for images in &other_images {
                slices.push(slice_of(&ifunc.name, images.get(&ifunc.name))?);
            }
            let Linked {
                image, relocations, ..
            } = first;
            built.push(BuiltIfunc {
                name: ifunc.name.clone(),
                path: PathBuf::new(),
                id: *blake3::hash(image).as_bytes(),
                image: image.clone(),
                other_slices: slices[1..].iter().map(|linked| BuiltSlice::new(linked)).collect(),
                package: package.map(Into::into),
                source: unit.file.clone(),
                fresh: false,
                language: Language::C,
                relocations: relocations.clone(),
            });
            let all = files.units.iter().flat_map(|unit| &unit.ifuncs);
            libraries.push(LibraryPlan {
                name: &ifunc.name,
                language: Language::C,
                arch: arch_of(image),
                about: about_text(all, image),
                slices,
                origin: origin.clone(),
                weaken: weaken.clone(),
                linker,
                link_args: &options.link_args,
                links_cxx: files.has_cxx(),
                current_dir: options.current_dir.as_deref(),
                verbose: options.verbose,
            });
        }
    }
    let made = make_all(&libraries, names.folder(), &files.compiler, progress)?;
    for (ifunc, (path, fresh)) in built.iter_mut().zip(made) {
        ifunc.path = path;
        ifunc.fresh = fresh;
        progress.built(ifunc);
    }
    Ok(built)
}

/// The image of an ifunc in another slice.
pub(crate) fn slice_of<'l>(name: &str, linked: Option<&'l Linked>) -> Result<&'l Linked, BuildError> {
    linked.ok_or_else(|| BuildError::Slices {
        name: name.to_owned(),
        why: "one has no such ifunc; help: conditions of compilation may choose code, and no ifuncs"
            .to_owned(),
    })
}

/// A file, and the images of its ifuncs by name.
struct LinkedUnit<'f> {
    unit: &'f CompiledFile,
    linker: Linker<'f>,
    images: BTreeMap<String, Linked>,
    /// Symbols that the target may provide.
    weaken: Vec<String>,
}

/// Links the ifuncs of files that were compiled together.
fn link_files<'f>(
    files: &'f CompiledFiles,
    options: &COptions,
    progress: &mut dyn Progress,
) -> Result<Vec<LinkedUnit<'f>>, BuildError> {
    let needed = needed::sonames(&options.needed)?;
    let CompiledFiles {
        units,
        shown,
        support,
        cpu_features,
        ..
    } = files;
    let all = units.iter().flat_map(|unit| &unit.ifuncs);
    let others: Vec<Ifunc<'_>> = all.map(requested).collect();
    let variables: BTreeSet<&str> = files.variables().collect();
    let wanted = Wanted {
        others: &others,
        variables: &variables,
        cpu_features: *cpu_features,
        needed: &needed,
    };
    let mut linked = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        if unit.ifuncs.is_empty() {
            continue;
        }
        let parts = units.iter().zip(shown).map(|(unit, name)| LinkFile {
            name,
            data: &unit.object,
            is_helper: unit.ifuncs.is_empty(),
        });
        let mut inputs = inputs_of(number, parts, support);
        // Of all files: their ifuncs may be entries of this one's images.
        for (other, unit) in units
            .iter()
            .enumerate()
            .filter(|(_, unit)| !unit.batches.is_empty())
        {
            inputs.push(batch::input(&unit.batches, other == number));
        }
        let linker = Linker::open(&inputs)?;
        let images = link_unit(unit, &wanted, &linker, progress)?;
        // Symbols of every C library stay strong: they bind the library to the C library of the machine.
        let mut weaken = imports_of(images.values().map(|linked| &linked.image));
        weaken.retain(|symbol| !COMPILER_IMPORTS.contains(&&**symbol));
        linked.push(LinkedUnit {
            unit,
            linker,
            images,
            weaken,
        });
    }
    Ok(linked)
}

/// An ifunc as the linker is told of it.
fn requested(ifunc: &CIfunc) -> Ifunc<'_> {
    Ifunc {
        flags: EntryFlags::NONE
            .union_if(!ifunc.returns_status, EntryFlags::IGNORE_RESULT)
            .union_if(ifunc.shareable, EntryFlags::SHARED)
            .union_if(ifunc.idempotent, EntryFlags::IDEMPOTENT),
        payload_align: PAYLOAD_ALIGN,
        ..Ifunc::new(&ifunc.name)
    }
}

/// What all links of a build have in common.
struct Wanted<'a> {
    /// The ifuncs of all files.
    others: &'a [Ifunc<'a>],
    /// The imports that a file declares as variables.
    variables: &'a BTreeSet<&'a str>,
    cpu_features: u64,
    needed: &'a [&'a str],
}

/// The images of a file, by name.
fn link_unit(
    unit: &CompiledFile,
    wanted: &Wanted<'_>,
    linker: &Linker<'_>,
    progress: &mut dyn Progress,
) -> Result<BTreeMap<String, Linked>, BuildError> {
    let mut images = BTreeMap::new();
    let mut errors = Vec::new();
    for ifunc in &unit.ifuncs {
        progress.linking(&ifunc.name);
        let request = Request {
            cpu_features: wanted.cpu_features,
            needed: wanted.needed.to_vec(),
            others: wanted.others.to_vec(),
            variables: wanted.variables.clone(),
            ..Request::of(requested(ifunc), Imports::Any)
        };
        match linker.link_explained(&request) {
            Ok(linked) => {
                images.insert(ifunc.name.clone(), linked);
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(images)
    } else {
        Err(BuildError::Link { errors })
    }
}

/// One of the files of a link.
struct LinkFile<'a> {
    name: &'a str,
    data: &'a [u8],
    /// It has no ifunc of its own.
    is_helper: bool,
}

/// The inputs of the ifuncs of file `number`. The file itself and the helpers come first; the files of other ifuncs are
/// searched as archives are, because functions of one name may be in both.
fn inputs_of<'a>(
    number: usize,
    parts: impl Iterator<Item = LinkFile<'a>>,
    support: &'a [u8],
) -> Vec<Input<'a>> {
    let mut inputs: Vec<Input<'_>> = parts
        .enumerate()
        .map(|(other, part)| Input {
            name: part.name,
            data: part.data,
            role: match other == number || part.is_helper {
                true => Role::User,
                false => Role::Neighbour,
            },
        })
        .collect();
    inputs.extend(support_input(support));
    inputs
}

fn support_input(support: &[u8]) -> Option<Input<'_>> {
    (!support.is_empty()).then_some(Input {
        name: "libgcc.a",
        data: support,
        role: Role::Support,
    })
}

/// The text that a library carries beside the image: of its entries.
fn about_text<'i>(ifuncs: impl Iterator<Item = &'i CIfunc>, image: &[u8]) -> String {
    let entries = entries_of(image);
    let here = ifuncs.filter(|ifunc| entries.contains(&ifunc.name));
    here.map(|ifunc| format!("entry {}\nconvention {}\n", ifunc.name, ifunc.convention.name()))
        .collect()
}

/// The names of the entries of an image that the linker made.
pub(crate) fn entries_of(image: &[u8]) -> Vec<String> {
    let image = Image::parse(image);
    let entries = image.iter().flat_map(Image::entries);
    entries.map(|entry| entry.name.to_owned()).collect()
}

/// The imports of images.
pub(crate) fn imports_of<'i>(images: impl Iterator<Item = &'i Vec<u8>>) -> Vec<String> {
    let mut symbols: Vec<String> = images
        .filter_map(|image| Image::parse(image).ok())
        .flat_map(|image| {
            image
                .imports()
                .map(|import| import.symbol.to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    symbols.sort_unstable();
    symbols.dedup();
    symbols
}

/// ELF machine of an image that the linker made.
pub(crate) fn arch_of(image: &[u8]) -> u16 {
    Image::parse(image).map_or(0, |image| image.arch())
}

/// Names of the objects, for messages; the path of the file where two would be equal.
fn shown(units: &[CompiledFile]) -> Vec<String> {
    let stem = |unit: &CompiledFile| unit.file.file_stem().unwrap_or_default().to_owned();
    units
        .iter()
        .map(
            |unit| match units.iter().filter(|u| stem(u) == stem(unit)).count() {
                1 => format!("{}.o", stem(unit).to_string_lossy()),
                _ => unit.file.display().to_string(),
            },
        )
        .collect()
}
