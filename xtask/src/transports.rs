//! The transports that the tests use.

use crate::debian;

/// All of them: UCX where it was installed.
pub(crate) fn all() -> &'static [&'static str] {
    const ALL: [&str; 4] = ["shm", "loopback", "ucx", "ucx-put"];
    &ALL[..if debian::is_debian() { 4 } else { 2 }]
}

/// Those that cross between processes.
pub(crate) fn between_processes() -> impl Iterator<Item = &'static str> {
    all().iter().copied().filter(|name| *name != "loopback")
}

/// Those that UCX carries.
pub(crate) fn over_ucx() -> impl Iterator<Item = &'static str> {
    all().iter().copied().filter(|name| name.starts_with("ucx"))
}
