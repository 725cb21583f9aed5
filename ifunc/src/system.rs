//! What the target's system provides to every ifunc: random bytes, and the time of day.
//!
//! Every target provides both. [`Context::now`](crate::Context::now) is another clock: it never goes back, and says nothing about the
//! time of day.
//!
//! # Crates that draw random numbers
//!
//! With the feature `getrandom` of `ifunc`, the crate `getrandom` (0.3 and 0.4) draws from the target, and so do `uuid`, `rand` and others that
//! use it. It finds this backend by a flag of the compiler, which the package of ifuncs states for its images:
//!
//! ```toml
//! [dependencies]
//! ifunc = { version = "0.1", features = ["alloc", "getrandom"] }
//! uuid = { version = "1", default-features = false, features = ["v4"] }
//!
//! [package.metadata.ifunc]
//! cfg = ['getrandom_backend="custom"']
//! ```
//!
//! In the source's program and in unit tests, which are no images, `getrandom` asks the operating system as usual.

use core::time::Duration;

pub use crate::system_time::{OutOfRange, SystemTime};

/// The system has no random bytes, as at most while it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl core::fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the target's system has no random bytes")
    }
}

impl core::error::Error for NoRandomness {}

/// Fills `out` with random bytes of the target's system, which are fit for keys.
///
/// ```
/// # #![no_std]
/// use ifunc::prelude::*;
///
/// /// A number that is hard to guess.
/// #[ifunc]
/// pub fn new_session(_user: u64, sessions: &mut u64) -> u64 {
///     let mut bytes = [0; 8];
///     ifunc::system::random(&mut bytes).expect("the system has started");
///     *sessions += 1;
///     u64::from_le_bytes(bytes)
/// }
/// # fn main() {}
/// ```
///
/// # Errors
/// The system has none. `out` may have changed.
pub fn random(out: &mut [u8]) -> Result<(), NoRandomness> {
    if imports::random(out) {
        Ok(())
    } else {
        Err(NoRandomness)
    }
}

/// The time since the beginning of 1970, by the target's clock, which may be set meanwhile.
#[must_use]
pub fn unix_time() -> Duration {
    Duration::from_nanos(imports::unix_time())
}

/// The target's functions: see `ifunc_abi::symbols`.
#[cfg(ifunc_image)]
mod imports {
    unsafe extern "C" {
        fn __ifunc_random(out: *mut u8, len: usize) -> u32;
        fn __ifunc_unix_time() -> u64;
    }

    #[inline]
    pub(super) fn random(out: &mut [u8]) -> bool {
        // SAFETY: the target writes to these bytes, which are borrowed exclusively.
        unsafe { __ifunc_random(out.as_mut_ptr(), out.len()) == 0 }
    }

    #[inline]
    pub(super) fn unix_time() -> u64 {
        // SAFETY: it may always be called.
        unsafe { __ifunc_unix_time() }
    }
}

/// Outside of images: this process's system.
#[cfg(not(ifunc_image))]
mod imports {
    use std::fs::File;
    use std::io::Read as _;
    use std::time::SystemTime;

    pub(super) fn random(out: &mut [u8]) -> bool {
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(out))
            .is_ok()
    }

    pub(super) fn unix_time() -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The backend of the crate `getrandom`, in images.
#[cfg(all(ifunc_image, feature = "getrandom"))]
mod backend {
    /// Any number that is not one of the system's.
    const NO_RANDOMNESS: u16 = 1;

    #[unsafe(no_mangle)]
    unsafe extern "Rust" fn __getrandom_v03_custom(
        dest: *mut u8,
        len: usize,
    ) -> Result<(), getrandom::Error> {
        unsafe extern "C" {
            fn __ifunc_random(out: *mut u8, len: usize) -> u32;
        }
        // SAFETY: `getrandom` passes memory that may be written to, and need not be initialised.
        match unsafe { __ifunc_random(dest, len) } {
            0 => Ok(()),
            _ => Err(getrandom::Error::new_custom(NO_RANDOMNESS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_the_year_is_right() {
        let (mut one, mut other) = ([0; 32], [0; 32]);
        random(&mut one).unwrap();
        random(&mut other).unwrap();
        assert_ne!(one, other);
        random(&mut []).unwrap();
        assert!(unix_time().as_secs() > 1_700_000_000);
    }

    /// Set in a process that may have few descriptors.
    const FEW: &str = "IFUNC_TEST_FEW_DESCRIPTORS";

    #[test]
    fn a_system_without_random_bytes_is_an_error() {
        let starved = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 16 && exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["system::tests::few_descriptors", "--exact", "--ignored"])
            .env(FEW, "yes")
            .output()
            .unwrap();
        let text = std::string::String::from_utf8_lossy(&starved.stdout);
        assert!(starved.status.success(), "{text}");
    }

    #[test]
    #[ignore = "role: a process without a descriptor for the system's random bytes"]
    fn few_descriptors() {
        if std::env::var_os(FEW).is_none() {
            return;
        }
        let mut held = std::vec::Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            held.push(file);
        }
        let error = random(&mut [0; 8]).unwrap_err();
        assert_eq!(error, NoRandomness);
        drop(held);
        assert!(std::format!("{error}").contains("random bytes"), "{error}");
    }
}
