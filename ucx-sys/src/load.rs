//! Finding UCX.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Ucx;
use crate::bindings::resolve;

/// The version that these bindings are of: older ones lack functions.
const LEAST: (u32, u32) = (1, 13);

/// A version of UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number: versions that differ in it have nothing in common.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub release: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// Why there is no UCX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library cannot be opened.
    #[error(
        "cannot open `{library}` of UCX: {reason}\nhelp: install it: `apt-get install libucx0` (Debian, Ubuntu), `dnf install ucx` (Fedora, RHEL); where it lies elsewhere, put its folder into LD_LIBRARY_PATH"
    )]
    Missing {
        /// Name of the library.
        library: &'static str,
        /// What the dynamic linker said.
        reason: String,
    },
    /// A version that these bindings do not know.
    #[error(
        "UCX {found} is too {}, 1.13 or a later 1.x is needed\nhelp: install such a version (Debian 12 and Ubuntu 24.04 have one in `libucx0`, RHEL 9 in `ucx`), or put the folder of one into LD_LIBRARY_PATH",
        if (found.major, found.minor) < LEAST { "old" } else { "new" }
    )]
    Version {
        /// What was found.
        found: Version,
    },
    /// A library of a known version lacks a function.
    #[error(
        "`{symbol}` is not in UCX {found}: it is no complete UCX\nhelp: install it anew: `apt-get install --reinstall libucx0` (Debian, Ubuntu), `dnf reinstall ucx` (Fedora, RHEL)"
    )]
    Symbol {
        /// Name of the function.
        symbol: &'static str,
        /// The version that the library says it is.
        found: Version,
    },
}

impl Ucx {
    /// The UCX of this machine. Found the first time, and never unloaded: what was found is kept, a failure is not.
    ///
    /// While it is found, signal handlers and the calling thread's alternate stack are kept and put back (see the crate's
    /// documentation). What other threads install for those signals meanwhile is undone with it.
    ///
    /// # Errors
    /// No UCX, one that is too old or of another ABI, or one that lacks functions.
    pub fn load() -> Result<&'static Self, LoadError> {
        static UCX: OnceLock<Ucx> = OnceLock::new();
        static FINDING: Mutex<()> = Mutex::new(());
        if let Some(ucx) = UCX.get() {
            return Ok(ucx);
        }
        // One at a time: a second thread would take UCX's handlers, which the first is about to replace, for those of the
        // process, and put them back.
        let _finding = FINDING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ucx) = UCX.get() {
            return Ok(ucx);
        }
        let found = find()?;
        Ok(UCX.get_or_init(|| found))
    }

    /// The version of what was loaded.
    #[must_use]
    pub fn version(&self) -> Version {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: writes three numbers.
        unsafe { self.ucp_get_version(&raw mut major, &raw mut minor, &raw mut release) };
        Version {
            major,
            minor,
            release,
        }
    }
}

/// Whether functions of this version are what the bindings say.
fn judge(found: Version) -> Result<(), LoadError> {
    // Within a major version structures grow at their ends, behind masks of the fields that are used.
    if found.major == LEAST.0 && found.minor >= LEAST.1 {
        Ok(())
    } else {
        Err(LoadError::Version { found })
    }
}

#[cfg(feature = "link")]
fn find() -> Result<Ucx, LoadError> {
    let ucx = resolve();
    judge(ucx.version())?;
    Ok(ucx)
}

#[cfg(not(feature = "link"))]
pub(crate) use run_time::Libraries;

#[cfg(not(feature = "link"))]
use run_time::find;

#[cfg(not(feature = "link"))]
mod run_time {
    use std::ffi::c_uint;
    use std::mem::ManuallyDrop;

    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    use super::{LoadError, Ucx, Version, judge, resolve};
    use crate::signals::Handlers;

    /// UCX's libraries, open.
    pub(crate) struct Libraries {
        pub(crate) ucp: ManuallyDrop<Library>,
        pub(crate) ucs: ManuallyDrop<Library>,
        found: Version,
    }

    pub(super) fn find() -> Result<Ucx, LoadError> {
        // UCX's libraries install signal handlers when they are opened.
        let _handlers = Handlers::keep();
        let libraries = Libraries::open("libucp.so.0", "libucs.so.0")?;
        resolve(&libraries)
    }

    impl Libraries {
        pub(super) fn open(ucp: &'static str, ucs: &'static str) -> Result<Self, LoadError> {
            let ucp = open(ucp)?;
            let found = version(&ucp)?;
            judge(found)?;
            Ok(Self {
                ucp,
                ucs: open(ucs)?,
                found,
            })
        }

        /// A function. `name` ends in a zero.
        ///
        /// # Safety
        /// `F` must be a pointer to a function of its prototype.
        pub(crate) unsafe fn symbol<F: Copy>(
            &self,
            library: &Library,
            name: &'static str,
        ) -> Result<F, LoadError> {
            // SAFETY: passed on to the caller. The library is never closed, so that the function stays where it is.
            let symbol = unsafe { library.get::<F>(name.as_bytes()) };
            symbol.map(|symbol| *symbol).map_err(|_| LoadError::Symbol {
                symbol: name.trim_end_matches('\0'),
                found: self.found,
            })
        }
    }

    /// Opens a library for good: UCX's threads and what runs at exit need it.
    fn open(library: &'static str) -> Result<ManuallyDrop<Library>, LoadError> {
        // SAFETY: UCX's initialisers have no preconditions; the signal handlers are restored.
        let opened = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
        opened.map(ManuallyDrop::new).map_err(|error| LoadError::Missing {
            library,
            reason: error.to_string(),
        })
    }

    /// The version that a library says it is.
    fn version(ucp: &Library) -> Result<Version, LoadError> {
        type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
        let mut version = Version {
            major: 0,
            minor: 0,
            release: 0,
        };
        // SAFETY: it has had this prototype in every version of UCX.
        let get = unsafe { ucp.get::<GetVersion>(b"ucp_get_version\0") };
        let get = get.map_err(|_| LoadError::Symbol {
            symbol: "ucp_get_version",
            found: version,
        })?;
        // SAFETY: writes three numbers.
        unsafe {
            get(
                &raw mut version.major,
                &raw mut version.minor,
                &raw mut version.release,
            )
        };
        Ok(version)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_missing_is_named_with_its_package() {
            let error = Libraries::open("libucp-that-is-not-there.so.0", "libucs.so.0")
                .map(drop)
                .unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("cannot open `libucp-that-is-not-there.so.0` of UCX: "),
                "{text}"
            );
            assert!(
                text.contains("help: install it: `apt-get install libucx0`"),
                "{text}"
            );
        }

        #[test]
        fn a_library_that_is_no_ucx_is_named() {
            let error = Libraries::open("libc.so.6", "libucs.so.0").map(drop).unwrap_err();
            assert!(
                matches!(
                    error,
                    LoadError::Symbol {
                        symbol: "ucp_get_version",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged() {
        let version = |major, minor| Version {
            major,
            minor,
            release: 1,
        };
        assert_eq!(judge(version(1, 13)), Ok(()));
        assert_eq!(judge(version(1, 22)), Ok(()));
        for (found, word) in [
            (version(1, 12), "too old"),
            (version(0, 20), "too old"),
            (version(2, 0), "too new"),
        ] {
            let text = judge(found).unwrap_err().to_string();
            assert!(text.contains(&format!("UCX {found} is {word}")), "{text}");
        }
    }
}
