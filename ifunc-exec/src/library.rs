//! Ifunc libraries on the source: the images that one holds, and its functions that write payloads.
//!
//! `cargo ifunc build` makes `X.so`, an ordinary shared library. The images of `X`, a slice for each kind of machine, lie in a section
//! of its own. `X_payload_bound` or
//! `X_payload_get_max_size`, and `X_payload_init`, are functions of the library, which the source opens for them.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};

use ifunc_abi::machine::Machine;
use ifunc_abi::slices::{Slice, Slices};
use ifunc_abi::symbols;
use libloading::os::unix as loader;
use object::{Object, ObjectSection};
use rustix::fs::MemfdFlags;

use crate::arch::ARCH;

/// The images of an ifunc in a library, and the text about its types.
#[derive(Clone, Debug)]
pub struct LibraryImage<'a> {
    /// The ifunc that the library was built for.
    pub name: &'a str,
    /// The images, in the order of the library's table: at least one. `ifunc_abi::image::Image::parse` validates them.
    pub slices: Vec<Slice<'a>>,
    /// The text beside them ([`About`](ifunc_abi::about::About)); empty if there is none.
    pub about: &'a [u8],
}

impl<'a> LibraryImage<'a> {
    /// The image that most machines of this architecture run: what a source sends to a peer that does not say what it is.
    ///
    /// # Errors
    /// There is none for this architecture.
    pub fn for_unknown_peer(&self) -> Result<&'a [u8], String> {
        let of_arch = self.slices.iter().filter(|slice| slice.machine.arch == ARCH);
        match of_arch.min_by_key(|slice| slice.machine.cpu_features.count_ones()) {
            Some(slice) => Ok(slice.bytes),
            None => Err(format!(
                "it holds images of `{}` for {}, and none for {}",
                self.name,
                machines(self.slices.iter().map(|slice| slice.machine)),
                Machine {
                    arch: ARCH,
                    cpu_features: 0
                }
            )),
        }
    }
}

/// Machines, for messages.
#[must_use]
pub fn machines(machines: impl Iterator<Item = Machine>) -> String {
    let machines: Vec<String> = machines.map(|machine| machine.to_string()).collect();
    machines.join(", ")
}

/// The images of a library, from the bytes of its file.
///
/// # Errors
/// The bytes are no ELF file, or the images in it are not in the form of this version; the text is its parser's.
pub fn images(bytes: &[u8]) -> Result<Vec<LibraryImage<'_>>, String> {
    let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
    let mut images = Vec::new();
    for section in file.sections() {
        let Ok(section_name) = section.name_bytes() else {
            continue;
        };
        let Some(of) = section_name.strip_prefix(symbols::IMAGE_SECTION.as_bytes()) else {
            continue;
        };
        let Ok(name) = str::from_utf8(of) else { continue };
        let about = file
            .section_by_name(&format!("{}{name}", symbols::ABOUT_SECTION))
            .and_then(|section| section.data().ok());
        images.push(LibraryImage {
            name,
            slices: native_slices(section.data().unwrap_or_default())?,
            about: about.unwrap_or_default(),
        });
    }
    Ok(images)
}

/// The images in a table of slices, each compared with its id and with the machine that the table states.
///
/// # Errors
/// The bytes are no such table, an image is not what the table states, or there is none.
pub fn native_slices(table: &[u8]) -> Result<Vec<Slice<'_>>, String> {
    let table = Slices::parse(table).map_err(|error| error.to_string())?;
    let native: Vec<Slice<'_>> = table.native().collect();
    for slice in &native {
        if blake3::hash(slice.bytes) != slice.id {
            return Err(format!("its slice for {} was changed", slice.machine));
        }
    }
    match native.is_empty() {
        true => Err("it holds no slice of machine code".into()),
        false => Ok(native),
    }
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

/// The functions of an opened library that write the payload of an ifunc.
#[derive(Debug)]
pub struct SourceFunctions {
    bound: Bound,
    init: Init,
    /// Keeps the functions mapped.
    _library: libloading::Library,
    /// The loader identifies libraries by name: while this file is open, no other library has its name.
    _file: OwnedFd,
}

impl SourceFunctions {
    /// Opens the library whose file has these bytes, for the ifunc `name`. The same bytes that its image was read from: the file may
    /// have been replaced since, and the loader would return the library that it opened under the same name before.
    ///
    /// # Safety
    /// The bytes must be those of an ifunc library whose author is trusted with this process.
    ///
    /// # Errors
    /// The loader's reason, or what the library lacks.
    pub unsafe fn open(bytes: &[u8], name: &str) -> Result<Self, String> {
        let file = in_memory(name, bytes).map_err(|error| error.to_string())?;
        let name_of_file = format!("/proc/self/fd/{}", file.as_raw_fd());
        // A symbol that nothing defines is an error here, and no end of the process at its first use.
        // SAFETY: the caller's promise.
        let opened =
            unsafe { loader::Library::open(Some(&name_of_file), loader::RTLD_NOW | loader::RTLD_LOCAL) }
                .map_err(|error| explain_open(&error, &name_of_file))?;
        let opened = libloading::Library::from(opened);
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
                    return Err(format!(
                        "it must define exactly one of `{name}{a}` and `{name}{b}`"
                    ));
                }
            }
        };
        Ok(Self {
            bound,
            init: init.map_err(|error| error.to_string())?,
            _library: opened,
            _file: file,
        })
    }

    /// Upper bound of the payload's length.
    ///
    /// # Safety
    /// `source_args` and `n` are what the ifunc's author expects; most expect `n` readable bytes.
    #[inline]
    #[must_use]
    pub unsafe fn bound(&self, source_args: *const c_void, n: usize) -> usize {
        // SAFETY: an ifunc library's function, trusted by the caller that opened it; the rest is the caller's promise.
        unsafe { (self.bound)(source_args, n) }
    }

    /// Writes the payload into `size` bytes and returns its length, which is at most `size`.
    ///
    /// # Safety
    /// As [`bound`](Self::bound). `payload` is writable for `size` bytes: as many as [`bound`](Self::bound) returned for the same
    /// arguments.
    ///
    /// # Errors
    /// The code that `X_payload_init` returned, which is not 0.
    #[inline]
    pub unsafe fn init(
        &self,
        source_args: *const c_void,
        n: usize,
        payload: *mut c_void,
        size: usize,
    ) -> Result<usize, i32> {
        let mut len = size;
        // SAFETY: as above.
        let code = unsafe {
            match self.init {
                Init::Bound(init) => init(source_args, n, payload, &raw mut len),
                Init::MaxSize(init) => init(payload, size, source_args, n),
            }
        };
        match code {
            // It may only shrink the size.
            0 => Ok(len.min(size)),
            code => Err(code),
        }
    }
}

/// The loader's reason, without the name of our copy of the library.
fn explain_open(error: &libloading::Error, name_of_file: &str) -> String {
    let reason = match std::error::Error::source(error) {
        Some(loaders) => loaders.to_string(),
        None => error.to_string(),
    };
    let reason = reason
        .strip_prefix(name_of_file)
        .map_or(&*reason, |rest| rest.trim_start_matches(": "));
    match reason.strip_prefix("undefined symbol: ") {
        Some(symbol) => format!(
            "nothing defines `{symbol}`, which its `payload_init` or `payload_bound` uses; help: link the library that does, \
             as in `cargo ifunc build X.c --link-arg=-lz`"
        ),
        None => reason.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_reason_is_told_without_the_name_of_our_copy() {
        let name = "/proc/self/fd/999999";
        // SAFETY: there is no such library, so nothing of it runs.
        let error = unsafe { libloading::Library::new(name) }.unwrap_err();
        let why = explain_open(&error, name);
        assert!(
            !why.contains(name) && why.starts_with("cannot open shared object file"),
            "{why}"
        );
        assert!(explain_open(&error, "another").contains(name));
    }
}
