//! Ifunc libraries: reads an image from a library, and opens a library for its `payload_init`.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ifunc::payload::Ifunc;
use ifunc_abi::about::About;
use ifunc_abi::image::{EntryFlags, Image, ImportKind, MAGIC};
use ifunc_abi::{ImageId, symbols};
use libloading::os::unix as loader;
use object::{Object, ObjectSection};
use rustix::fs::MemfdFlags;

use super::completion::{FUNCTION, VARIABLE};
use super::error::{Error, LibraryError};
use crate::fingerprint;
use ifunc_exec::debug::{self, DebugObject, Functions};
use ifunc_exec::{InstalledEntry, InstalledImage};

/// An entry of an image, and the metadata of its library.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// Of the entry.
    pub(super) name: String,
    /// The ifunc that the library was built for: another one, if the entry is used through its library.
    library_name: String,
    pub(super) id: ImageId,
    /// Index of the entry.
    entry: u8,
    /// Number of the image's entries.
    entries: u8,
    pub(super) image: Vec<u8>,
    about: Vec<u8>,
    flags: EntryFlags,
    /// Its code may send other invocations, or forward itself.
    pub(super) travels: bool,
    pub(super) payload_align: usize,
    /// The installed entry that it was made of.
    installed: Option<Arc<InstalledEntry>>,
    /// The functions of the library, if it was opened.
    pub(super) source_functions: Option<SourceFunctions>,
    /// Symbols of the image, after the first request; `None` if they are unknown.
    functions: OnceLock<Option<Functions>>,
}

impl ifunc_proto::caller::Image for Library {
    fn id(&self) -> &ImageId {
        &self.id
    }

    fn bytes(&self) -> &[u8] {
        &self.image
    }

    fn entries(&self) -> u8 {
        self.entries
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    #[inline]
    fn is_idempotent(&self) -> bool {
        self.flags.contains(EntryFlags::IDEMPOTENT)
    }
}

impl Library {
    pub(super) fn read(path: &Path, name: Option<&str>) -> Result<Self, LibraryError> {
        Self::parse(&read_file(path)?, name, path)
    }

    /// Parses a library or an image, for the entry of this name. Without a name it is the entry that the library is named after: it
    /// must hold exactly one image. An image by itself must have exactly one entry then.
    pub(super) fn parse(bytes: &[u8], name: Option<&str>, path: &Path) -> Result<Self, LibraryError> {
        let not = |why: String| LibraryError::NotALibrary {
            path: path.to_owned(),
            why,
        };
        let mut library_name = None;
        let (image, about) = if bytes.starts_with(&MAGIC) {
            (bytes.to_vec(), Vec::new())
        } else {
            let file = object::File::parse(bytes).map_err(|error| not(error.to_string()))?;
            let images: Vec<(&str, &[u8])> = file
                .sections()
                .filter_map(|section| {
                    let of = section.name().ok()?.strip_prefix(symbols::IMAGE_SECTION)?;
                    Some((of, section.data().unwrap_or_default()))
                })
                .collect();
            let has_entry =
                |image: &[u8], name: &str| Image::parse(image).is_ok_and(|image| image.entry(name).is_some());
            let found = match (name, &*images) {
                (Some(name), images) => images
                    .iter()
                    .find(|(of, _)| *of == name)
                    // Or another entry of an image.
                    .or_else(|| images.iter().find(|(_, image)| has_entry(image, name)))
                    .ok_or_else(|| format!("it holds no image of `{name}`")),
                (None, [one]) => Ok(one),
                (None, []) => Err("it holds no image".into()),
                (None, several) => {
                    let names: Vec<_> = several.iter().map(|(of, _)| *of).collect();
                    Err(format!("it holds several images: {}", names.join(", ")))
                }
            };
            let (of, _) = *found.map_err(not)?;
            library_name = Some(of.to_owned());
            let section = |prefix: &str| {
                let data = file
                    .section_by_name(&format!("{prefix}{of}"))
                    .and_then(|section| section.data().ok());
                data.unwrap_or_default().to_vec()
            };
            (section(symbols::IMAGE_SECTION), section(symbols::ABOUT_SECTION))
        };
        let parsed = Image::parse(&image).map_err(|error| LibraryError::Image {
            path: path.to_owned(),
            error,
        })?;
        let names = || {
            let names: Vec<_> = parsed.entries().map(|entry| entry.name).collect();
            names.join("`, `")
        };
        let only = || parsed.entries().next().filter(|_| parsed.entries().len() == 1);
        let found = match name.or(library_name.as_deref()) {
            Some(name) => parsed
                .entry(name)
                .ok_or_else(|| format!("its image is of `{}`, not of `{name}`", names())),
            None => only().map(|entry| (0, entry)).ok_or_else(|| {
                let names = names();
                format!("its image has several entries: `{names}`; help: name one, with `Source::load_entry`")
            }),
        };
        let (index, entry) = found.map_err(not)?;
        let name = entry.name.to_owned();
        let (flags, payload_align, entries) = (entry.flags, entry.payload_align, parsed.entries().len());
        Ok(Self {
            path: path.to_owned(),
            library_name: library_name.unwrap_or_else(|| name.clone()),
            name,
            id: *blake3::hash(&image).as_bytes(),
            entry: index as u8,
            entries: entries as u8,
            flags,
            payload_align,
            travels: parsed.travels(),
            installed: None,
            about,
            image,
            source_functions: None,
            functions: OnceLock::new(),
        })
    }

    /// An entry of an image that this process runs, to be sent on: the image as it arrived.
    pub(crate) fn of_installed(image: &Arc<InstalledImage>, index: usize) -> std::io::Result<Self> {
        let entry = InstalledEntry::all(image).nth(index);
        let entry = entry.ok_or(std::io::ErrorKind::NotFound)?;
        let bytes = image.original()?;
        let path = Path::new("(installed)");
        let library = Self::parse(&bytes, Some(&entry.name), path).map_err(std::io::Error::other)?;
        Ok(Self {
            installed: Some(entry),
            ..library
        })
    }

    /// The installed entry that it was made of.
    pub(crate) fn installed(&self) -> Option<&Arc<InstalledEntry>> {
        self.installed.as_ref()
    }

    /// Whether it is this entry of an installed image.
    pub(crate) fn is_entry(&self, id: &ImageId, index: usize) -> bool {
        let entry = self.installed.as_ref().filter(|_| self.id == *id);
        entry.is_some_and(|entry| {
            let of_image = entry.image().entries.get(index);
            of_image.is_some_and(|of_image| of_image.main == entry.main_offset())
        })
    }

    /// Combines an image with the metadata of its library.
    pub(super) fn embedded(image: &[u8], about: &[u8], name: &str) -> Result<Self, LibraryError> {
        let path = PathBuf::from(format!("{name}, embedded in this program"));
        Ok(Self {
            about: about.to_vec(),
            ..Self::parse(image, Some(name), &path)?
        })
    }

    /// Reads a library and opens it.
    ///
    /// # Safety
    /// As for [`SourceFunctions::open`].
    pub(super) unsafe fn open(path: &Path, name: Option<&str>) -> Result<Self, LibraryError> {
        let bytes = read_file(path)?;
        let library = Self::parse(&bytes, name, path)?;
        // SAFETY: the caller's promise.
        let functions = unsafe { SourceFunctions::open(&bytes, &library)? };
        Ok(Self {
            source_functions: Some(functions),
            ..library
        })
    }

    pub(super) fn about(&self) -> About<'_> {
        About::new(&self.about).unwrap_or_default()
    }

    /// Whether the image takes an import for a function or a variable, if it states that.
    pub(super) fn kind_of_import(&self, symbol: &str) -> Option<&'static str> {
        let image = Image::parse(&self.image).ok()?;
        let mut imports = image.imports();
        match imports.find(|import| import.symbol == symbol)?.kind() {
            ImportKind::Variable => Some(VARIABLE),
            ImportKind::Function => Some(FUNCTION),
            ImportKind::Unknown => None,
        }
    }

    /// Describes the function of the image that a backtrace led to. It reads the library again for its symbols, once:
    /// they are large and panics are rare, but an ifunc that panics every time must not cause a read every time.
    pub(super) fn describe(&self, calls: &[u32]) -> String {
        let Ok(image) = Image::parse(&self.image) else {
            return String::new();
        };
        debug::describe(&self.name, image.rx(), calls, self.functions())
    }

    /// As [`describe`](Self::describe), of a fault.
    pub(super) fn describe_fault(&self, calls: &[u32], is_placed: bool) -> String {
        let Ok(image) = Image::parse(&self.image) else {
            return String::new();
        };
        debug::describe_fault(&self.name, image.rx(), calls, self.functions(), is_placed)
    }

    /// The functions of the image, if its library has their names.
    fn functions(&self) -> Option<&Functions> {
        let read =
            || DebugObject::read(&self.path, &self.library_name, &self.id).map(DebugObject::into_functions);
        self.functions.get_or_init(read).as_ref()
    }

    /// Compares the image's types with those that this program was compiled with.
    pub(super) fn check_types<F: Ifunc>(&self) -> Result<(), LibraryError> {
        // The constructor has parsed it.
        let image = Image::parse(&self.image).ok();
        let Some((_, entry)) = image.and_then(|image| image.entry(&self.name)) else {
            return Ok(());
        };
        let about = self.about().entry(&self.name);
        let types = [
            ("payload", F::PAYLOAD, entry.payload, about.payload()),
            ("target", F::TARGET, entry.target, about.target()),
            ("answer", F::ANSWER, entry.answer, about.answer()),
        ];
        for (what, ours, fingerprint, theirs) in types {
            if fingerprint != fingerprint::of(ours.as_str()) {
                return Err(LibraryError::Type {
                    path: self.path.clone(),
                    what,
                    ours: ours.as_str().to_owned(),
                    theirs: theirs
                        .unwrap_or("(not stated: a C ifunc, or an image without its library)")
                        .to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The bytes of a file.
fn read_file(path: &Path) -> Result<Vec<u8>, LibraryError> {
    std::fs::read(path).map_err(|error| LibraryError::Read {
        path: path.to_owned(),
        error,
    })
}

type Bound = unsafe extern "C" fn(source_args: *const c_void, n: usize) -> usize;
/// `X_payload_init` beside `X_payload_bound`.
type InitBound =
    unsafe extern "C" fn(source_args: *const c_void, n: usize, payload: *mut c_void, size: *mut usize) -> i32;
/// `X_payload_init` beside `X_payload_get_max_size`.
type InitMaxSize =
    unsafe extern "C" fn(payload: *mut c_void, size: usize, source_args: *const c_void, n: usize) -> i32;

#[derive(Clone, Copy, Debug)]
enum Init {
    Bound(InitBound),
    MaxSize(InitMaxSize),
}

/// Functions of an opened library that the source calls.
#[derive(Debug)]
pub(super) struct SourceFunctions {
    name: String,
    bound: Bound,
    init: Init,
    /// Keeps the functions mapped.
    _library: libloading::Library,
    /// The loader identifies libraries by name: while this file is open, no other library has its name.
    _file: OwnedFd,
}

/// What the loader said, without the name of our copy of the library.
fn explain_open(error: &libloading::Error, name_of_file: &str) -> String {
    let said = match std::error::Error::source(error) {
        Some(loaders) => loaders.to_string(),
        None => error.to_string(),
    };
    let said = said
        .strip_prefix(name_of_file)
        .map_or(&*said, |rest| rest.trim_start_matches(": "));
    match said.strip_prefix("undefined symbol: ") {
        Some(symbol) => format!(
            "nothing defines `{symbol}`, which its `payload_init` or `payload_bound` uses; help: link the library that does, \
             as in `cargo ifunc build X.c --link-arg=-lz`"
        ),
        None => said.to_owned(),
    }
}

/// Creates a file in memory with these bytes.
fn in_memory(name: &str, bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Write;
    let flags = MemfdFlags::CLOEXEC;
    let name = format!("ifunc-{name}");
    let fd = rustix::fs::memfd_create(&*name, flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(&*name, flags))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}

impl SourceFunctions {
    /// Opens the same `bytes` that the library was read from: the file may have been replaced since, and the loader
    /// would return the library that it opened under the same name before.
    ///
    /// # Safety
    /// The bytes must be those of an ifunc library whose author is trusted with this process.
    unsafe fn open(bytes: &[u8], library: &Library) -> Result<Self, LibraryError> {
        let path = &library.path;
        let open = |why: String| LibraryError::Open {
            path: path.to_owned(),
            why,
        };
        let file = in_memory(&library.name, bytes).map_err(|error| open(error.to_string()))?;
        let name_of_file = format!("/proc/self/fd/{}", file.as_raw_fd());
        // A symbol that nothing defines is an error here, and no end of the process at its first use.
        // SAFETY: the caller's promise.
        let opened =
            unsafe { loader::Library::open(Some(&name_of_file), loader::RTLD_NOW | loader::RTLD_LOCAL) }
                .map_err(|error| open(explain_open(&error, &name_of_file)))?;
        let opened = libloading::Library::from(opened);
        let name = library.name.clone();
        let symbol = |suffix: &str| format!("{name}{suffix}\0");
        let init = symbol(symbols::INIT_SUFFIX);
        // SAFETY: an ifunc library defines these symbols with these types. The first two decide on the type of the third.
        let (bound, init) = unsafe {
            let get = |suffix: &str| opened.get::<Bound>(symbol(suffix)).map(|symbol| *symbol).ok();
            match (get(symbols::BOUND_SUFFIX), get(symbols::MAX_SIZE_SUFFIX)) {
                (Some(bound), None) => (bound, opened.get(init.as_str()).map(|init| Init::Bound(*init))),
                (None, Some(bound)) => (bound, opened.get(init.as_str()).map(|init| Init::MaxSize(*init))),
                _ => {
                    let (a, b) = (symbols::BOUND_SUFFIX, symbols::MAX_SIZE_SUFFIX);
                    return Err(open(format!(
                        "it must define exactly one of `{name}{a}` and `{name}{b}`"
                    )));
                }
            }
        };
        let init = init.map_err(|error| open(error.to_string()))?;
        Ok(Self {
            name,
            bound,
            init,
            _library: opened,
            _file: file,
        })
    }

    /// Upper bound of the payload's length.
    pub(super) fn bound(&self, source_args: &[u8]) -> usize {
        // SAFETY: an ifunc library's function, trusted by the caller that opened it, and a readable range.
        unsafe { (self.bound)(source_args.as_ptr().cast(), source_args.len()) }
    }

    /// Writes the payload and returns its length.
    pub(super) fn init(&self, source_args: &[u8], payload: &mut [u8]) -> Result<usize, Error> {
        let (args, n) = (source_args.as_ptr().cast::<c_void>(), source_args.len());
        let (to, mut size) = (payload.as_mut_ptr().cast::<c_void>(), payload.len());
        // SAFETY: as above, and a writable range of `size` bytes.
        let code = unsafe {
            match self.init {
                Init::Bound(init) => init(args, n, to, &raw mut size),
                Init::MaxSize(init) => init(to, size, args, n),
            }
        };
        if code != 0 {
            return Err(Error::PayloadInit {
                ifunc: self.name.clone(),
                code,
            });
        }
        // It may only shrink the size.
        Ok(size.min(payload.len()))
    }
}
