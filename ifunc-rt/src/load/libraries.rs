//! Shared libraries of the target's machine: what an image may need beside the host's names.
//!
//! They are opened when the target starts to listen, never by an image: when constructors run is no peer's choice, and a
//! target that gives up its rights afterwards has them already. An image that needs one sees the symbols which that
//! library itself defines, not those of the libraries behind it: allowing `libz.so.1` does not allow the C library.

#[cfg(not(target_feature = "crt-static"))]
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;

use ifunc_abi::name;

/// A soname that [`allow_library`](crate::TargetBuilder::allow_library) was given and that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no soname; help: a name without a path, such as `libz.so.1`: the loader finds the file")]
pub struct InvalidSoname(pub String);

/// A library that the builder allowed.
#[derive(Debug)]
pub(crate) struct SharedLibrary {
    soname: String,
    /// The library, or why it could not be opened.
    opened: Result<Opened, String>,
}

#[derive(Debug)]
struct Opened {
    /// Never closed: an address of it may be kept by a pinned image, and a library's constructors need not bear to be
    /// run twice.
    library: ManuallyDrop<libloading::os::unix::Library>,
    /// Where its segments are mapped.
    segments: Vec<Range<usize>>,
}

impl SharedLibrary {
    /// Opens a library. That it cannot be opened is told to whoever needs it.
    ///
    /// # Safety
    /// The library's constructors must be harmless to this process.
    pub(crate) unsafe fn open(soname: &str) -> Result<Self, InvalidSoname> {
        if !name::is_valid_soname(soname) {
            return Err(InvalidSoname(soname.to_owned()));
        }
        // SAFETY: the caller's promise.
        let opened = unsafe { open(soname) };
        if let Err(why) = &opened {
            tracing::warn!(soname, why, "a shared library that is allowed cannot be opened");
        }
        Ok(Self {
            soname: soname.to_owned(),
            opened,
        })
    }

    pub(crate) fn soname(&self) -> &str {
        &self.soname
    }

    /// Why it is not there; `None` if it is.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.opened.as_ref().err().map(|why| &**why)
    }

    /// The address of a function or an object that the library itself defines.
    pub(crate) fn get(&self, symbol: &str) -> Option<*const ()> {
        let opened = self.opened.as_ref().ok()?;
        // SAFETY: the address is only looked at; what it is taken for is what `accept_code` vouches for.
        let address = unsafe { opened.library.get::<*const ()>(symbol).ok()?.into_raw() };
        // The loader looks into the libraries behind it too.
        let own = opened
            .segments
            .iter()
            .any(|segment| segment.contains(&address.addr()));
        own.then_some(address.cast())
    }
}

// A static program has a `dlopen` that works only beside the very C library it was linked with.
#[cfg(target_feature = "crt-static")]
unsafe fn open(_: &str) -> Result<Opened, String> {
    Err("this target is linked statically: it has no loader that could open a shared library".into())
}

#[cfg(not(target_feature = "crt-static"))]
unsafe fn open(soname: &str) -> Result<Opened, String> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    let explain = |error: libloading::Error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    // SAFETY: the caller's promise.
    let library = unsafe { Library::open(Some(soname), RTLD_NOW | RTLD_LOCAL) }.map_err(explain)?;
    let handle = library.into_raw();
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: the handle is open, and this request writes the address of its link map.
    let found = unsafe { dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0 && !map.is_null() };
    if !found {
        return Err("the loader does not say where it is mapped".into());
    }
    // SAFETY: the map lives as long as the handle, which is never closed.
    let dynamic = unsafe { (*map).dynamic }.addr();
    let mut segments = segments_of(dynamic, PT_DYNAMIC);
    if segments.is_empty() {
        return Err("the loader does not say where it is mapped".into());
    }
    // The C library's clocks are, where the kernel has them, functions of the kernel's own object: the C library gives
    // its callers their addresses.
    if soname.starts_with(C_LIBRARY)
        && let Some(header) = std::num::NonZero::new(kernel_object())
    {
        segments.extend(segments_of(header.get(), PT_LOAD));
    }
    Ok(Opened {
        // SAFETY: taken from a library above.
        library: ManuallyDrop::new(unsafe { Library::from_raw(handle) }),
        segments,
    })
}

/// The loaded segments of the object that has a segment of this kind around `address`.
#[cfg(not(target_feature = "crt-static"))]
fn segments_of(address: usize, kind: u32) -> Vec<Range<usize>> {
    struct Wanted {
        address: usize,
        kind: u32,
        found: Vec<Range<usize>>,
    }

    unsafe extern "C" fn look(info: *const ObjectInfo, _: usize, wanted: *mut c_void) -> c_int {
        // SAFETY: `wanted` is what was passed below, and the loader passes an object that stays while it is looked at.
        let (wanted, info) = unsafe { (&mut *wanted.cast::<Wanted>(), &*info) };
        // SAFETY: so many program headers of a loaded object are there.
        let headers = unsafe { std::slice::from_raw_parts(info.headers, info.count.into()) };
        let ranges = |kind: u32| {
            headers
                .iter()
                .filter(move |header| header.kind == kind)
                .map(|header| {
                    let start = info.difference.wrapping_add(header.address);
                    start..start.wrapping_add(header.len)
                })
        };
        let is_it = ranges(wanted.kind).any(|range| range.contains(&wanted.address));
        if is_it {
            wanted.found = ranges(PT_LOAD).collect();
        }
        is_it.into()
    }

    let mut wanted = Wanted {
        address,
        kind,
        found: Vec::new(),
    };
    // SAFETY: `look` is of the type that is called, with the pointer that is passed; it does not unwind.
    unsafe { dl_iterate_phdr(look, (&raw mut wanted).cast()) };
    wanted.found
}

/// Where the kernel's own object (the vDSO) is mapped; 0 if there is none.
#[cfg(not(target_feature = "crt-static"))]
fn kernel_object() -> usize {
    // SAFETY: it takes any number.
    unsafe { getauxval(AT_SYSINFO_EHDR) }
}

/// What sonames of the C library begin with.
#[cfg(not(target_feature = "crt-static"))]
const C_LIBRARY: &str = "libc.so.";

/// Kinds of segments, of `<elf.h>`.
#[cfg(not(target_feature = "crt-static"))]
const PT_LOAD: u32 = 1;
#[cfg(not(target_feature = "crt-static"))]
const PT_DYNAMIC: u32 = 2;

/// Of `<elf.h>`.
#[cfg(not(target_feature = "crt-static"))]
const AT_SYSINFO_EHDR: std::ffi::c_ulong = 33;

/// The beginning of `struct dl_phdr_info` of `<link.h>`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
struct ObjectInfo {
    difference: usize,
    _name: *const std::ffi::c_char,
    headers: *const ProgramHeader,
    count: u16,
}

/// `Elf64_Phdr` of `<elf.h>`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    _flags: u32,
    _offset: u64,
    address: usize,
    _physical: u64,
    _file_len: u64,
    len: usize,
    _align: u64,
}

/// The beginning of `struct link_map` of `<link.h>`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
struct LinkMap {
    _difference: usize,
    _name: *const std::ffi::c_char,
    dynamic: *const c_void,
}

/// `RTLD_DI_LINKMAP` of `<dlfcn.h>`.
#[cfg(not(target_feature = "crt-static"))]
const RTLD_DI_LINKMAP: c_int = 2;

#[cfg(not(target_feature = "crt-static"))]
unsafe extern "C" {
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
    fn dl_iterate_phdr(
        look: unsafe extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn getauxval(kind: std::ffi::c_ulong) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_its_own_symbols_only() {
        // SAFETY: the C library, which is there already.
        let libc = unsafe { SharedLibrary::open("libc.so.6") }.unwrap();
        assert_eq!((libc.soname(), libc.problem()), ("libc.so.6", None));
        assert!(libc.get("qsort").is_some() && libc.get("stdout").is_some());
        assert!(libc.get("no_such_function").is_none());
        // SAFETY: libm, which the tests are linked with anyway.
        let libm = unsafe { SharedLibrary::open("libm.so.6") }.unwrap();
        assert!(libm.get("cos").is_some());
        assert!(libm.get("qsort").is_none(), "of the library behind it");
        for clock in ["time", "gettimeofday", "clock_gettime"] {
            assert!(libc.get(clock).is_some(), "{clock}, which may be the kernel's");
            assert!(libm.get(clock).is_none(), "{clock}");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        // SAFETY: there is no such library.
        let absent = unsafe { SharedLibrary::open("libifunc-is-not-there.so.7") }.unwrap();
        let why = absent.problem().unwrap();
        assert!(why.contains("libifunc-is-not-there.so.7"), "{why}");
        assert!(absent.get("qsort").is_none());
        for path in ["/lib/libz.so.1", "./libz.so.1", "", "lib z.so"] {
            // SAFETY: nothing is opened.
            let error = unsafe { SharedLibrary::open(path) }.unwrap_err();
            assert!(error.to_string().contains("help: "), "{error}");
        }
    }
}
