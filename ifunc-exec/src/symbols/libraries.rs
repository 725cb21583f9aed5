//! Shared libraries of the target's machine whose symbols an image may import.
//!
//! The target opens them when it starts to listen. An image never opens one, so no peer chooses when constructors run, and a
//! target that drops privileges afterwards has them already. An image that needs a library sees the symbols that this
//! library itself defines, not those of its dependencies: allowing `libz.so.1` does not allow the C library.
//!
//! A library stays open, unless the host replaces it at run time: then it is closed when no invocation can be in it.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ifunc_abi::name;

/// A name given to `allow_library` that is not a soname.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a soname; help: a name without a path, such as `libz.so.1`: the loader finds the file")]
pub struct InvalidSoname(pub String);

/// A library that the host allows.
#[derive(Debug)]
pub(crate) struct SharedLibrary {
    /// The library, or the reason why it could not be opened.
    opened: Result<Opened, String>,
}

#[derive(Debug)]
struct Opened {
    /// Not closed, unless it was replaced: a pinned image may keep an address of it, and constructors may not bear to run
    /// twice.
    library: ManuallyDrop<libloading::os::unix::Library>,
    /// Where the objects are mapped whose symbols count as the library's own.
    bases: Vec<*mut c_void>,
    is_closed_with_this: AtomicBool,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if *self.is_closed_with_this.get_mut() {
            // SAFETY: taken once, here. No invocation can be in the library: it was replaced before.
            drop(unsafe { ManuallyDrop::take(&mut self.library) });
        }
    }
}

// SAFETY: the bases are compared and never read through; a library handle is bound to no thread.
unsafe impl Send for Opened {}
// SAFETY: as above; looking up a symbol is thread-safe by POSIX.
unsafe impl Sync for Opened {}

impl SharedLibrary {
    /// Opens the library of this soname, by that name or from a file. An image that needs one that cannot be opened is
    /// refused with the reason.
    ///
    /// # Safety
    /// The library's constructors must be harmless to this process.
    pub(crate) unsafe fn open(soname: &str, file: impl AsRef<Path>) -> Result<Self, InvalidSoname> {
        if !name::is_valid_soname(soname) {
            return Err(InvalidSoname(soname.to_owned()));
        }
        // SAFETY: the caller's promise.
        let opened = unsafe { open(soname, file.as_ref()) };
        if let Err(why) = &opened {
            tracing::warn!(target: crate::LOG, soname, why, "a shared library that is allowed cannot be opened");
        }
        Ok(Self { opened })
    }

    /// Lets the library be closed when this is dropped. No address of it may be in use then.
    pub(crate) fn close_with_this(&self) {
        if let Ok(opened) = &self.opened {
            opened.is_closed_with_this.store(true, Ordering::Relaxed);
        }
    }

    /// Why the library could not be opened; `None` if it is open.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.opened.as_ref().err().map(|why| &**why)
    }

    /// The address of a function or an object that the library itself defines.
    pub(crate) fn get(&self, symbol: &str) -> Option<*const ()> {
        let opened = self.opened.as_ref().ok()?;
        // SAFETY: the address is not used here; `Policy::accept_unsigned` vouches for its type.
        let address = unsafe { opened.library.get::<*const ()>(symbol).ok()?.into_raw() };
        // The loader also searches the dependencies.
        opened
            .bases
            .contains(&object_base(address)?)
            .then_some(address.cast())
    }
}

// A static program has a `dlopen` that works only beside the very C library it was linked with.
#[cfg(target_feature = "crt-static")]
unsafe fn open(_: &str, _: &Path) -> Result<Opened, String> {
    Err("this target is linked statically: it has no loader that could open a shared library".into())
}

#[cfg(not(target_feature = "crt-static"))]
unsafe fn open(soname: &str, file: &Path) -> Result<Opened, String> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    let explain = |error: libloading::Error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    // SAFETY: the caller's promise.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(explain)?;
    let handle = library.into_raw();
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: the handle is open, and this request writes the address of its link map.
    let found = unsafe { dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0 && !map.is_null() };
    // SAFETY: the map lives as long as the handle, which is never closed.
    let base = found.then(|| object_base(unsafe { (*map).dynamic })).flatten();
    let Some(base) = base else {
        return Err("the loader does not say where it is mapped".into());
    };
    let mut bases = vec![base];
    // The C library's clocks are functions of the vDSO where the kernel has one: the C library hands out their addresses.
    if soname.starts_with("libc.so.") {
        // SAFETY: it takes any number.
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        if vdso != 0 {
            bases.push(std::ptr::without_provenance_mut(vdso as usize));
        }
    }
    Ok(Opened {
        // SAFETY: taken from a library above.
        library: ManuallyDrop::new(unsafe { Library::from_raw(handle) }),
        bases,
        is_closed_with_this: AtomicBool::new(false),
    })
}

/// Where the loaded object that holds `address` is mapped.
fn object_base(address: *const c_void) -> Option<*mut c_void> {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address and writes the structure it is given; zeroes are a value of it.
    unsafe {
        let found = libc::dladdr(address, about.as_mut_ptr()) != 0;
        found.then(|| about.assume_init().dli_fbase)
    }
}

/// The beginning of `struct link_map` of `<link.h>`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
struct LinkMap {
    _difference: usize,
    _name: *const std::ffi::c_char,
    dynamic: *const c_void,
}

/// Of `<dlfcn.h>`. The `libc` crate has both for glibc alone.
#[cfg(not(target_feature = "crt-static"))]
const RTLD_DI_LINKMAP: std::ffi::c_int = 2;

#[cfg(not(target_feature = "crt-static"))]
unsafe extern "C" {
    fn dlinfo(handle: *mut c_void, request: std::ffi::c_int, info: *mut c_void) -> std::ffi::c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_its_own_symbols_only() {
        // SAFETY: the C library, which is loaded already.
        let libc = unsafe { SharedLibrary::open("libc.so.6", "libc.so.6") }.unwrap();
        assert_eq!(libc.problem(), None);
        assert!(libc.get("qsort").is_some() && libc.get("stdout").is_some());
        assert!(libc.get("no_such_function").is_none());
        // SAFETY: libm, which the tests are linked with anyway.
        let libm = unsafe { SharedLibrary::open("libm.so.6", "libm.so.6") }.unwrap();
        assert!(libm.get("cos").is_some());
        assert!(libm.get("qsort").is_none(), "of a dependency");
        for clock in ["time", "gettimeofday", "clock_gettime"] {
            assert!(libc.get(clock).is_some(), "{clock}, which may be the kernel's");
            assert!(libm.get(clock).is_none(), "{clock}");
        }
    }

    #[test]
    fn a_library_that_cannot_be_opened_reports_why() {
        const NOWHERE: &str = "libifunc-is-not-there.so.7";
        // SAFETY: there is no such library.
        let absent = unsafe { SharedLibrary::open(NOWHERE, NOWHERE) }.unwrap();
        let why = absent.problem().unwrap();
        assert!(why.contains("libifunc-is-not-there.so.7"), "{why}");
        assert!(absent.get("qsort").is_none());
        for path in ["/lib/libz.so.1", "./libz.so.1", "", "lib z.so"] {
            // SAFETY: nothing is opened.
            let error = unsafe { SharedLibrary::open(path, path) }.unwrap_err();
            assert!(error.to_string().contains("help: "), "{error}");
        }
    }
}
