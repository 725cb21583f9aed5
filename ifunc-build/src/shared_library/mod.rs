//! The library of an ifunc: an ordinary shared library for the source that carries the image.
//!
//! `cc -shared` links copies of the objects that the image was linked from. Symbols that only `X_main` needs are weak
//! in the copies, so that the library opens where the target's functions do not exist. Symbols that the source's
//! functions need stay strong, so that the link extracts them from archives. The entries of Rust ifuncs that may panic are
//! renamed: the C runtime defines functions of the original names, which catch panics and call them.

mod edit;
mod embed;
mod job;
mod runtime;
mod slices;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use ifunc_abi::symbols::{BOUND_SUFFIX, INIT_SUFFIX, MAIN_SUFFIX, MAX_SIZE_SUFFIX, PANIC};
use object::{Object as _, ObjectSection as _};

use crate::c::Compiler;
use crate::{BuildError, Language, Progress};
use edit::{Edits, edit};
use embed::{BUILD_SECTION, Parts, anchors, embed};
use ifunc_link::{InputError, Linked, Linker, SharedLibrary};
pub(crate) use job::make_all;
use job::{Link, LinkJob};

/// Version of the library format: bump it when the same parts yield another library.
const FORMAT: &str = concat!("ifunc-build ", env!("CARGO_PKG_VERSION"), " library 7");

/// A library to be made.
pub(crate) struct LibraryPlan<'l, 'a> {
    pub(crate) name: &'l str,
    pub(crate) language: Language,
    /// ELF `e_machine` of the image.
    pub(crate) arch: u16,
    /// Its images. The library's own code is linked from the same objects as the first.
    pub(crate) slices: Vec<&'l Linked>,
    pub(crate) about: String,
    /// Its origin: `rust PACKAGE` or `c PATH`.
    pub(crate) origin: String,
    /// Symbols that the target may provide: weak in the library, unless the source's functions need them too.
    pub(crate) weaken: Vec<String>,
    /// The linker that made the image.
    pub(crate) linker: &'l Linker<'a>,
    /// More arguments for the link.
    pub(crate) link_args: &'l [String],
    /// The source's functions may need the C++ library.
    pub(crate) links_cxx: bool,
    /// The base of relative paths in `link_args`; the current directory if `None`.
    pub(crate) current_dir: Option<&'l Path>,
    pub(crate) verbose: bool,
}

/// The origin of an existing library.
pub(crate) fn origin_of(path: &Path, name: &str) -> Option<String> {
    build_lines(path, name)?.remove("origin")
}

fn build_lines(path: &Path, name: &str) -> Option<BTreeMap<String, String>> {
    let data = fs::read(path).ok()?;
    let file = object::File::parse(&*data).ok()?;
    let section = file.section_by_name(&format!("{BUILD_SECTION}{name}"))?;
    let text = std::str::from_utf8(section.data().ok()?).ok()?;
    Some(
        text.lines()
            .filter_map(|l| l.split_once(' '))
            .map(|(k, v)| (k.into(), v.into()))
            .collect(),
    )
}

impl LibraryPlan<'_, '_> {
    /// Prepares the link of `FOLDER/NAME.so`, unless the existing one was made from the same parts.
    fn prepare(
        &self,
        folder: &Path,
        compiler: &Compiler,
        progress: &mut dyn Progress,
    ) -> Result<LinkJob, BuildError> {
        let path = folder.join(format!("{}.so", self.name));
        let entries = self.entries();
        let exports = self.exports(&entries);
        let parts = self.linker.shared_library(&exports);
        let catches = self.catches_panics(&parts, &entries);
        let edits = self.edits(&parts, &entries, catches);
        let key = self.key(&parts, &exports, &edits, compiler);
        // Files named by link arguments are not compared: a library with link arguments is always made again.
        if self.link_args.is_empty()
            && build_lines(&path, self.name)
                .and_then(|mut lines| lines.remove("key"))
                .as_deref()
                == Some(&key)
        {
            return Ok(LinkJob { path, link: None });
        }
        let mut objects = edited(&parts, &edits)?;
        let (images, debug) = slices::tables(self.name, &self.slices)?;
        let build = format!("key {key}\norigin {}\n", self.origin);
        let rust = self.language == Language::Rust;
        if rust {
            objects.push(runtime::object(
                self.name,
                catches,
                folder,
                compiler,
                self.verbose,
                progress,
            )?);
        }
        let parts = Parts {
            images: &images,
            about: &self.about,
            debug: &debug,
            build: &build,
            name_symbol: rust.then_some(runtime::NAME_SYMBOL),
        };
        objects.push(embed(self.arch, self.name, &parts).map_err(|e| self.failed(compiler, &e.to_string()))?);

        fs::create_dir_all(folder).map_err(io("create", folder))?;
        let work = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(folder)
            .map_err(io("create a directory in", folder))?;
        let write = |name: &str, data: &[u8]| {
            let path = work.path().join(name);
            fs::write(&path, data).map_err(io("write", &path)).map(|()| path)
        };
        let result = work.path().join("library.so");
        let mut command = compiler.command_in(self.current_dir);
        command.args(["-shared", "-o"]).arg(&result);
        command.args([
            "-Wl,--gc-sections",
            "-Wl,-Bsymbolic",
            "-Wl,-z,noexecstack",
            "-Wl,-z,defs",
        ]);
        command.args(anchors(self.name).map(|anchor| format!("-Wl,-u,{anchor}")));
        command.arg("-Wl,--warn-unresolved-symbols");
        let script = write("exports.map", version_script(&exports).as_bytes())?;
        command.arg(format!("-Wl,--version-script={}", script.display()));
        for (index, object) in objects.iter().enumerate() {
            command.arg(write(&format!("{index}.o"), object)?);
        }
        command.args(self.link_args);
        if self.links_cxx {
            command.args(["-Wl,--push-state,--as-needed", "-lstdc++", "-Wl,--pop-state"]);
        }
        if self.verbose {
            progress.command(&format!("{command:?}"));
        }
        let link = Some(Link {
            command,
            result,
            work,
        });
        Ok(LinkJob { path, link })
    }

    /// Reports errors and warnings of the link.
    fn report_diagnostics(
        &self,
        output: &Output,
        compiler: &Compiler,
        progress: &mut dyn Progress,
    ) -> Result<(), BuildError> {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(self.failed(compiler, &stderr));
        }
        if !stderr.trim().is_empty() {
            progress.diagnostic(&format!(
                "warning: linking the library of `{}`:\n{stderr}",
                self.name
            ));
        }
        Ok(())
    }

    /// Whether the source's functions may panic, as far as the references of their code tell. A source calls them for every message:
    /// to catch what cannot be thrown would take longer than to write a short payload.
    fn catches_panics(&self, parts: &SharedLibrary<'_, '_>, entries: &[String]) -> bool {
        self.language == Language::Rust && parts.undefined_symbols(entries).contains(PANIC)
    }

    /// The edits of the symbols of the library's objects.
    fn edits(&self, parts: &SharedLibrary<'_, '_>, entries: &[String], catches: bool) -> Edits {
        // A weak reference extracts no member of an archive: the source would call null.
        let needed = parts.undefined_symbols(entries);
        let mut edits = Edits {
            weaken: self
                .weaken
                .iter()
                .filter(|symbol| !needed.contains(symbol.as_str()))
                .cloned()
                .collect(),
            export: self.exports(entries).into_iter().collect(),
            ..Edits::default()
        };
        if catches {
            edits.rename.extend(runtime::inner_names(self.name));
        }
        edits
    }

    /// The exports of the library. Some linkers refuse undefined names here.
    fn exports(&self, entries: &[String]) -> Vec<String> {
        let main = format!("{}{MAIN_SUFFIX}", self.name);
        std::iter::once(main).chain(entries.iter().cloned()).collect()
    }

    /// The functions that the source calls.
    fn entries(&self) -> Vec<String> {
        [BOUND_SUFFIX, MAX_SIZE_SUFFIX, INIT_SUFFIX]
            .map(|suffix| format!("{}{suffix}", self.name))
            .into_iter()
            .filter(|name| self.linker.defines(name))
            .collect()
    }

    /// A hash of everything that the library is made from.
    fn key(
        &self,
        parts: &SharedLibrary<'_, '_>,
        exports: &[String],
        edits: &Edits,
        compiler: &Compiler,
    ) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for bytes in [
            FORMAT,
            runtime::TEXT,
            self.name,
            &self.about,
            &self.origin,
            &compiler.name(),
            compiler.version(),
        ] {
            part(bytes.as_bytes());
        }
        part(&(self.link_args.len() as u64).to_le_bytes());
        self.link_args
            .iter()
            .for_each(|argument| part(argument.as_bytes()));
        for slice in &self.slices {
            part(&slice.image);
            part(&slice.debug);
        }
        part(&parts.digest());
        // Symbols that the library does not need make no difference.
        let undefined = parts.undefined_symbols(exports);
        let weak = edits
            .weaken
            .iter()
            .filter(|name| undefined.contains(name.as_str()));
        weak.for_each(|name| part(name.as_bytes()));
        hasher.finalize().to_hex().to_string()
    }

    fn failed(&self, compiler: &Compiler, stderr: &str) -> BuildError {
        BuildError::LinkShared {
            library: format!("{}.so", self.name),
            compiler: compiler.name(),
            stderr: stderr.trim_end().into(),
        }
    }
}

/// The objects of the library, edited.
fn edited(parts: &SharedLibrary<'_, '_>, edits: &Edits) -> Result<Vec<Vec<u8>>, BuildError> {
    let objects = parts.objects().map(|(name, data)| {
        edit(data, edits).map_err(|e| {
            BuildError::Input(InputError {
                name: name.into(),
                reason: e.to_string(),
            })
        })
    });
    objects.collect()
}

fn version_script(exports: &[String]) -> String {
    format!("{{ global: {}; local: *; }};\n", exports.join("; "))
}

/// Wraps an I/O error with the action and the path.
pub(crate) fn io<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(std::io::Error) -> BuildError + 'p {
    move |source| BuildError::Io {
        action,
        path: path.into(),
        source,
    }
}
