//! Shared libraries of the target's machine: what an image may need beside the host's names.
//!
//! They are opened when the target starts to listen, never by an image: when constructors run is no peer's choice, and a
//! target that gives up its rights afterwards has them already. An image that needs one sees the symbols which that
//! library itself defines, not those of the libraries behind it: allowing `libz.so.1` does not allow the C library.

use std::mem::ManuallyDrop;

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
    /// Where it is mapped.
    base: usize,
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
        (!address.is_null() && base_of(address.cast()) == Some(opened.base)).then_some(address.cast())
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
    let base = base_of(unsafe { (*map).dynamic });
    Ok(Opened {
        // SAFETY: taken from a library above.
        library: ManuallyDrop::new(unsafe { Library::from_raw(handle) }),
        base: base.ok_or("the loader does not say where it is mapped")?,
    })
}

/// Where the program or library that holds this address is mapped.
fn base_of(address: *const std::ffi::c_void) -> Option<usize> {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null(),
        symbol: std::ptr::null(),
        symbol_address: std::ptr::null(),
    };
    // SAFETY: `info` is what it writes; any address may be asked for.
    (unsafe { dladdr(address, &raw mut info) } != 0).then(|| info.base.addr())
}

/// `Dl_info` of `<dlfcn.h>`.
#[repr(C)]
struct DlInfo {
    file: *const std::ffi::c_char,
    base: *const std::ffi::c_void,
    symbol: *const std::ffi::c_char,
    symbol_address: *const std::ffi::c_void,
}

/// The beginning of `struct link_map` of `<link.h>`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
struct LinkMap {
    _difference: usize,
    _name: *const std::ffi::c_char,
    dynamic: *const std::ffi::c_void,
}

/// `RTLD_DI_LINKMAP` of `<dlfcn.h>`.
#[cfg(not(target_feature = "crt-static"))]
const RTLD_DI_LINKMAP: std::ffi::c_int = 2;

unsafe extern "C" {
    fn dladdr(address: *const std::ffi::c_void, info: *mut DlInfo) -> std::ffi::c_int;
    #[cfg(not(target_feature = "crt-static"))]
    fn dlinfo(
        handle: *mut std::ffi::c_void,
        request: std::ffi::c_int,
        info: *mut std::ffi::c_void,
    ) -> std::ffi::c_int;
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
