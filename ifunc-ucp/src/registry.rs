//! Registered ifuncs: from a name and a folder to an image and the functions that write its payloads.

use std::collections::HashMap;
use std::ffi::{OsString, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ifunc_abi::image::{Image, MAGIC};
use ifunc_exec::library::{self, SourceFunctions};
use ucx_sys::{
    UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR, UCS_ERR_NO_ELEM, UCS_ERR_UNSUPPORTED,
    ucs_status_t,
};

use crate::{frame, report, sum};

/// The variable that names the folder of libraries.
const FOLDER: &str = "UCX_IFUNC_LIB_DIR";
const DEFAULT_FOLDER: &str = "/usr/lib";
/// Most registrations of a process.
const MOST: usize = 4096;

/// A registered ifunc.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) image: Box<[u8]>,
    /// [`sum::of`] the image.
    pub(crate) image_sum: u64,
    /// Index of its entry.
    pub(crate) entry: u16,
    pub(crate) payload_align: usize,
    pub(crate) payloads: Payloads,
}

/// What makes a payload of source arguments.
#[derive(Debug)]
pub(crate) enum Payloads {
    /// Functions of the library.
    Written(SourceFunctions),
    /// The payload is a copy of them: of an image without a library.
    Copied,
}

/// A registration, as applications hold it: an index and how often the index was used before, so that a handle that was given back is
/// never another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    index: u16,
    generation: u32,
}

impl Handle {
    /// No pointer to memory, and not null.
    pub(crate) fn to_pointer(self) -> *mut c_void {
        let word = (self.generation as usize) << 20 | (usize::from(self.index) + 1) << 4;
        ptr::without_provenance_mut(word)
    }

    pub(crate) fn from_pointer(pointer: *mut c_void) -> Option<Self> {
        let word = pointer.addr();
        let index = (word >> 4 & 0xffff).checked_sub(1)?;
        let handle = Self {
            index: index as u16,
            generation: u32::try_from(word >> 20).ok()?,
        };
        (handle.to_pointer() == pointer).then_some(handle)
    }
}

/// What the process has registered. A context and a configuration are known by their addresses, until they end.
#[derive(Debug, Default)]
struct Registry {
    entries: Vec<Entry>,
    free: Vec<u16>,
    by_name: HashMap<(usize, String), Handle>,
    /// Folders of contexts, which are read when the context is made.
    folders: HashMap<usize, OsString>,
    /// Folders of configurations.
    configured: HashMap<usize, OsString>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    /// The context, and the ifunc; `None`: free.
    item: Option<(usize, Arc<Registration>)>,
}

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

fn read() -> RwLockReadGuard<'static, Option<Registry>> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Option<Registry>> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `with` for the registry. What it returns is dropped without the lock: to close a library runs its destructors.
fn change<T>(with: impl FnOnce(&mut Registry) -> T) -> T {
    with(write().get_or_insert_default())
}

impl Registry {
    fn add(&mut self, context: usize, registration: Arc<Registration>) -> Result<Handle, ucs_status_t> {
        let name = registration.name.clone();
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() == MOST => {
                report::error(format_args!("`{name}` is not registered: {MOST} ifuncs are"));
                return Err(UCS_ERR_EXCEEDS_LIMIT);
            }
            None => {
                self.entries.push(Entry {
                    generation: 0,
                    item: None,
                });
                (self.entries.len() - 1) as u16
            }
        };
        let entry = &mut self.entries[usize::from(index)];
        entry.item = Some((context, registration));
        let handle = Handle {
            index,
            generation: entry.generation,
        };
        self.by_name.insert((context, name), handle);
        Ok(handle)
    }

    fn remove(&mut self, context: usize, handle: Handle) -> Option<Arc<Registration>> {
        let entry = self.entries.get_mut(usize::from(handle.index))?;
        if entry.generation != handle.generation || entry.item.as_ref()?.0 != context {
            return None;
        }
        let (_, registration) = entry.item.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(handle.index);
        self.by_name.remove(&(context, registration.name.clone()));
        Some(registration)
    }
}

/// A context was made, with a configuration or none.
pub(crate) fn context_made(context: usize, config: usize) {
    change(|registry| {
        let configured = registry.configured.get(&config).cloned();
        let folder = configured.unwrap_or_else(from_environment);
        registry.folders.insert(context, folder);
    });
}

/// A context ends, and its registrations with it.
pub(crate) fn context_ends(context: usize) {
    drop(change(|registry| {
        registry.folders.remove(&context);
        let handles: Vec<Handle> = registry
            .by_name
            .iter()
            .filter(|((of, _), _)| *of == context)
            .map(|(_, handle)| *handle)
            .collect();
        let ended: Vec<_> = handles
            .into_iter()
            .map(|handle| registry.remove(context, handle))
            .collect();
        ended
    }));
}

/// Contexts with this configuration search in this folder.
pub(crate) fn configure(config: usize, folder: OsString) {
    change(|registry| registry.configured.insert(config, folder));
}

/// A configuration ends.
pub(crate) fn config_ends(config: usize) {
    change(|registry| registry.configured.remove(&config));
}

fn from_environment() -> OsString {
    std::env::var_os(FOLDER).unwrap_or_else(|| DEFAULT_FOLDER.into())
}

/// The registration of a handle.
pub(crate) fn find(handle: Handle) -> Option<Arc<Registration>> {
    let registry = read();
    let entry = registry.as_ref()?.entries.get(usize::from(handle.index))?;
    let (_, registration) = entry.item.as_ref()?;
    (entry.generation == handle.generation).then(|| Arc::clone(registration))
}

/// The handle of a name that is registered.
fn known(context: usize, name: &str) -> Option<Handle> {
    let registry = read();
    let key = (context, name.to_owned());
    registry.as_ref()?.by_name.get(&key).copied()
}

/// Forgets a registration. A handle that is none is ignored.
pub(crate) fn deregister(context: usize, handle: Handle) {
    drop(change(|registry| registry.remove(context, handle)));
}

/// Registers an ifunc with a context, by its name and what `load` finds. A name that is registered keeps its handle.
fn register(
    context: usize,
    name: &str,
    load: impl FnOnce() -> Result<Registration, ucs_status_t>,
) -> Result<Handle, ucs_status_t> {
    if !ifunc_abi::name::is_valid(name) {
        report::error(format_args!(
            "`{}` is not the name of an ifunc",
            name.escape_debug()
        ));
        return Err(UCS_ERR_INVALID_PARAM);
    }
    if let Some(handle) = known(context, name) {
        return Ok(handle);
    }
    // Without the lock: constructors of the library may call this interface.
    let registration = Arc::new(load()?);
    let kept = Arc::clone(&registration);
    change(|registry| {
        let known = registry.by_name.get(&(context, name.to_owned())).copied();
        // If another thread was faster, this one's library is closed after the lock is released.
        known.map_or_else(|| registry.add(context, kept), Ok)
    })
}

/// Registers the ifunc whose library lies in the context's folder.
///
/// # Errors
/// The status, after a line with the reason.
pub(crate) fn register_by_name(context: usize, name: &str) -> Result<Handle, ucs_status_t> {
    register(context, name, || {
        let (path, bytes) = read_library(context, name)?;
        let shown = path.display();
        of_library(name, &bytes).map_err(|why| {
            report::error(format_args!("cannot register `{name}`: `{shown}`: {why}"));
            UCS_ERR_IO_ERROR
        })
    })
}

/// Finds and reads the library of a name.
fn read_library(context: usize, name: &str) -> Result<(PathBuf, Vec<u8>), ucs_status_t> {
    let folder = read()
        .as_ref()
        .and_then(|registry| registry.folders.get(&context).cloned());
    let folder = folder.unwrap_or_else(from_environment);
    let mut reasons = Vec::new();
    // A list, as the runtime takes it, or one folder whose name has a colon.
    let folders = std::iter::once(PathBuf::from(&folder)).chain(std::env::split_paths(&folder));
    let mut has_bitcode = false;
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        let path = folder.join(format!("{name}.so"));
        match std::fs::read(&path) {
            Ok(bytes) => return Ok((path, bytes)),
            Err(error) => {
                let reason = format!("`{}`: {error}", path.display());
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        has_bitcode |= folder.join(format!("{name}.x86_64-pc-linux-gnu.bc")).exists();
    }
    let help = match has_bitcode {
        true => "bitcode is not run here; build its source by `cargo ifunc build`",
        false => "UCX_IFUNC_LIB_DIR names the folder in which `cargo ifunc build` left the library",
    };
    report::error(format_args!(
        "cannot register `{name}`: {}; help: {help}",
        reasons.join(", ")
    ));
    Err(UCS_ERR_IO_ERROR)
}

/// The ifunc of a library.
fn of_library(name: &str, bytes: &[u8]) -> Result<Registration, String> {
    let images = library::images(bytes)?;
    let has_entry = |found: &library::LibraryImage<'_>| {
        let first = found.slices.first().map(|slice| Image::parse(slice.bytes));
        first.is_some_and(|image| image.is_ok_and(|image| image.entry(name).is_some()))
    };
    let found = images.iter().find(|found| found.name == name);
    // Or another entry of an image.
    let found = found.or_else(|| images.iter().find(|found| has_entry(found)));
    let found = found.ok_or_else(|| match images.is_empty() {
        true => "it holds no image; help: build it by `cargo ifunc build`".to_owned(),
        false => format!("it holds no image of `{name}`"),
    })?;
    // SAFETY: the application trusts the libraries that it registers: it runs their functions.
    let functions = unsafe { SourceFunctions::open(bytes, name) }?;
    // Frames are sent to peers that say nothing of themselves.
    of_image(name, found.for_unknown_peer()?, Payloads::Written(functions))
}

fn of_image(name: &str, image: &[u8], payloads: Payloads) -> Result<Registration, String> {
    let parsed = Image::parse(image).map_err(|error| error.to_string())?;
    if image.len() > frame::MAX_IMAGE {
        return Err(format!("its image is larger than {} bytes", frame::MAX_IMAGE));
    }
    let (entry, properties) = parsed
        .entry(name)
        .ok_or_else(|| format!("its image has no entry `{name}`"))?;
    Ok(Registration {
        name: name.to_owned(),
        image: image.into(),
        image_sum: sum::of(image),
        entry: entry as u16,
        payload_align: properties.payload_align,
        payloads,
    })
}

/// Code in memory, for the machine of a triple.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) triple: &'a str,
    pub(crate) bytes: &'a [u8],
}

/// Registers an ifunc whose code is in memory.
///
/// # Safety
/// The bytes are of an author who is trusted with this process, and so are the libraries.
///
/// # Errors
/// The status, after a line with the reason.
pub(crate) unsafe fn register_in_memory(
    context: usize,
    name: &str,
    code: &[Code<'_>],
    libraries: &[&str],
) -> Result<Handle, ucs_status_t> {
    register(context, name, || {
        let failed = |status: ucs_status_t, why: std::fmt::Arguments<'_>| {
            report::error(format_args!("cannot register `{name}`: {why}"));
            status
        };
        let is_ours = |triple: &str| triple.split('-').next() == Some(std::env::consts::ARCH);
        let Some(code) = code.iter().find(|code| is_ours(code.triple)) else {
            let triples: Vec<_> = code.iter().map(|code| code.triple).collect();
            return Err(failed(
                UCS_ERR_NO_ELEM,
                format_args!(
                    "no code for {}, but for: {}",
                    std::env::consts::ARCH,
                    triples.join(", ")
                ),
            ));
        };
        if is_bitcode(code.bytes) {
            return Err(failed(
                UCS_ERR_UNSUPPORTED,
                format_args!("LLVM bitcode is not run; help: build its source by `cargo ifunc build`"),
            ));
        }
        for soname in libraries {
            // SAFETY: the caller's promise.
            match unsafe { libloading::Library::new(*soname) } {
                // For good: the library of the ifunc uses it.
                Ok(library) => std::mem::forget(library),
                Err(error) => {
                    let reason = std::error::Error::source(&error).map(ToString::to_string);
                    let reason = reason.unwrap_or_else(|| error.to_string());
                    return Err(failed(UCS_ERR_IO_ERROR, format_args!("{reason}")));
                }
            }
        }
        let registration = match code.bytes.starts_with(&MAGIC) {
            true => of_image(name, code.bytes, Payloads::Copied),
            false => of_library(name, code.bytes),
        };
        registration.map_err(|why| failed(UCS_ERR_IO_ERROR, format_args!("{why}")))
    })
}

/// Whether these are the first bytes of LLVM bitcode, bare or wrapped.
fn is_bitcode(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&[0xde, 0xc0, 0x17, 0x0b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_no_addresses_and_come_back() {
        for handle in [(0, 0), (u16::MAX - 1, u32::MAX), (4095, 7)] {
            let handle = Handle {
                index: handle.0,
                generation: handle.1,
            };
            assert!(!handle.to_pointer().is_null());
            assert_eq!(Handle::from_pointer(handle.to_pointer()), Some(handle));
        }
        for word in [0, 1, 15, 1 << 20, (1 << 4) + 1] {
            assert_eq!(
                Handle::from_pointer(ptr::without_provenance_mut(word)),
                None,
                "{word}"
            );
        }
    }

    fn nothing(name: &str) -> Arc<Registration> {
        Arc::new(Registration {
            name: name.to_owned(),
            image: Box::default(),
            image_sum: 0,
            entry: 0,
            payload_align: 1,
            payloads: Payloads::Copied,
        })
    }

    #[test]
    fn a_handle_that_was_given_back_is_never_another_ones() {
        let mut registry = Registry::default();
        let first = registry.add(1, nothing("a")).unwrap();
        assert!(registry.remove(2, first).is_none(), "of another context");
        assert!(registry.remove(1, first).is_some() && registry.remove(1, first).is_none());
        let second = registry.add(1, nothing("b")).unwrap();
        assert_eq!(first.index, second.index);
        assert!(registry.remove(1, first).is_none());
        for n in 1..MOST {
            registry.add(1, nothing(&n.to_string())).unwrap();
        }
        assert_eq!(registry.add(1, nothing("one more")), Err(UCS_ERR_EXCEEDS_LIMIT));
        assert!(registry.remove(1, second).is_some());
        assert!(registry.add(1, nothing("one more")).is_ok());
    }
}
