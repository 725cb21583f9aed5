//! Checks C files, objects and archives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ifunc_abi::image::EntryFlags;
use object::read::archive::ArchiveFile;

use super::{Compiler, PAYLOAD_ALIGN, ifuncs, is_c_source};
use crate::cargo::declared_imports;
use crate::shared_library::io;
use crate::{BuildError, COptions, Checked, CheckedIfunc, Progress};
use ifunc_link::{Ifunc, Imports, InputError, LinkError, Linker, Request};

/// A file that was read or compiled.
struct CheckedFile {
    file: PathBuf,
    /// An object or an archive.
    data: Vec<u8>,
    ifuncs: Vec<String>,
}

/// Finds every reason why a build of C files (`.c`), relocatable objects (`.o`) and archives (`.a`) would fail:
/// compiles and links them together in memory, once for each `X_main`.
///
/// An archive that rustc made may hold Rust ifuncs; their imports are those that they declare.
pub(crate) fn check_files(
    files: &[PathBuf],
    package: Option<&str>,
    options: &COptions,
    progress: &mut dyn Progress,
) -> Checked {
    let mut checked = Checked::default();
    let compiler = match Compiler::of(options) {
        Ok(compiler) => compiler,
        Err(error) => {
            checked.errors.push(error);
            return checked;
        }
    };
    let mut parts = Vec::new();
    for file in files {
        match part(file, &compiler, options, progress) {
            Ok(part) => parts.push(part),
            Err(error) => checked.errors.push(error),
        }
    }
    let cpu_features = match files.iter().any(|file| is_c_source(file)) {
        true => compiler.cpu_features(options),
        // Objects do not state their CPU level.
        false => Ok(0),
    };
    let cpu_features = cpu_features.unwrap_or_else(|error| {
        checked.errors.push(error);
        0
    });
    let support = compiler
        .support_library()
        .and_then(|path| std::fs::read(path).ok())
        .unwrap_or_default();
    // The file of the last ifunc of each name.
    let mut names: BTreeMap<&str, &Path> = BTreeMap::new();
    let mut link_errors = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let mut unique = Vec::new();
        for name in &part.ifuncs {
            match names.insert(name, &part.file) {
                None => unique.push(&**name),
                Some(first) => checked.errors.push(BuildError::DuplicateName {
                    name: name.clone(),
                    first: format!("`{}`", first.display()),
                    second: format!("`{}`", part.file.display()),
                    help: format!("in one of them, give the functions `{name}_*` another prefix"),
                }),
            }
        }
        if unique.is_empty() {
            continue;
        }
        let linked = match link(&unique, number, &parts, &support, cpu_features, progress) {
            Ok(linked) => linked,
            Err(error) => {
                checked.errors.push(error);
                continue;
            }
        };
        for (name, linked) in unique.into_iter().zip(linked) {
            match linked {
                Ok(image_bytes) => checked.ifuncs.push(CheckedIfunc {
                    name: name.into(),
                    package: package.map(Into::into),
                    source: part.file.clone(),
                    image_bytes,
                }),
                Err(error) => link_errors.push(error),
            }
        }
    }
    if !link_errors.is_empty() {
        checked.errors.push(BuildError::Link { errors: link_errors });
    }
    if package.is_none() && checked.errors.is_empty() && checked.ifuncs.is_empty() {
        checked.errors.push(super::no_ifunc(files));
    }
    checked
}

/// Compiles or reads a file, and finds its ifuncs.
fn part(
    file: &Path,
    compiler: &Compiler,
    options: &COptions,
    progress: &mut dyn Progress,
) -> Result<CheckedFile, BuildError> {
    std::fs::metadata(file).map_err(io("read", file))?;
    progress.compiling(&file.display().to_string());
    let data = match is_c_source(file) {
        true => compiler.compile(file, options, progress)?,
        false => std::fs::read(file).map_err(io("read", file))?,
    };
    let mut names = BTreeSet::new();
    match ArchiveFile::parse(&*data) {
        Ok(archive) => {
            let malformed = |e: object::Error| {
                BuildError::Input(InputError {
                    name: file.display().to_string(),
                    reason: e.to_string(),
                })
            };
            for member in archive.members() {
                let member = member.map_err(malformed)?.data(&*data).map_err(malformed)?;
                // Members that are not objects hold metadata of rustc.
                if object::File::parse(member).is_ok() {
                    names.extend(ifuncs::find(file, member)?.into_iter().map(|ifunc| ifunc.name));
                }
            }
        }
        Err(_) => names.extend(ifuncs::find(file, &data)?.into_iter().map(|ifunc| ifunc.name)),
    }
    Ok(CheckedFile {
        file: file.to_owned(),
        data,
        ifuncs: names.into_iter().collect(),
    })
}

/// An ifunc as the linker is told of it. Its flags do not decide whether it links.
fn requested(name: &str) -> Ifunc<'_> {
    Ifunc {
        flags: EntryFlags::IGNORE_RESULT,
        payload_align: PAYLOAD_ALIGN,
        ..Ifunc::new(name)
    }
}

/// Links ifuncs of file `number` and returns the length of each image.
fn link(
    names: &[&str],
    number: usize,
    parts: &[CheckedFile],
    support: &[u8],
    cpu_features: u64,
    progress: &mut dyn Progress,
) -> Result<Vec<Result<usize, LinkError>>, BuildError> {
    let shown: Vec<String> = parts.iter().map(|part| part.file.display().to_string()).collect();
    let all = parts.iter().zip(&shown).map(|(part, name)| super::LinkFile {
        name,
        data: &part.data,
        is_helper: part.ifuncs.is_empty(),
    });
    let inputs = super::inputs_of(number, all, support);
    let linker = Linker::open(&inputs)?;
    let declared = declared_imports(&parts[number].data, &shown[number])?;
    let imports = match &declared {
        Some(imports) => {
            let imports = imports.iter();
            Imports::Declared(imports.map(|(symbol, print)| (&**symbol, *print)).collect())
        }
        None => Imports::Any,
    };
    let known = parts.iter().flat_map(|part| &part.ifuncs);
    let others: Vec<Ifunc<'_>> = known.map(|name| requested(name)).collect();
    let linked = names.iter().map(|name| {
        progress.linking(name);
        let request = Request {
            others: others.clone(),
            cpu_features,
            ..Request::of(requested(name), imports.clone())
        };
        linker.link(&request).map(|image| image.len())
    });
    Ok(linked.collect())
}
