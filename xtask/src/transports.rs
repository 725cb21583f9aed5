//! The transports that the tests use.

use std::fs;
use std::path::PathBuf;

use crate::debian;
use crate::plan::Tier;
use crate::process::{ifunc, status};

/// All of them: UCX where it was installed, and TLS every night.
pub(crate) fn all(tier: Tier) -> &'static [&'static str] {
    const ALL: [&str; 5] = ["tls", "shm", "loopback", "ucx", "ucx-put"];
    let first = if tier == Tier::Nightly { 0 } else { 1 };
    &ALL[first..if debian::is_debian() { 5 } else { 3 }]
}

/// Those that cross between processes.
pub(crate) fn between_processes(tier: Tier) -> impl Iterator<Item = &'static str> {
    all(tier).iter().copied().filter(|name| *name != "loopback")
}

/// Those that UCX carries.
pub(crate) fn over_ucx() -> impl Iterator<Item = &'static str> {
    all(Tier::Commit)
        .iter()
        .copied()
        .filter(|name| name.starts_with("ucx"))
}

/// A key for TLS, which all processes of the tests share: the variables that name its files.
pub(crate) fn key() -> Result<[(&'static str, PathBuf); 2], String> {
    let folder = crate::target().join("tls");
    let [secret, public] = ["tests.key", "tests.pub"].map(|file| folder.join(file));
    if !public.exists() {
        let failed = |error| format!("cannot make {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        // Half of a pair is left of an attempt that was interrupted.
        let _ = fs::remove_file(&secret);
        let name = folder.join("tests");
        status(&mut ifunc(&["keygen", "--quiet", &name.to_string_lossy()])?)?;
    }
    Ok([("IFUNC_TLS_KEY", secret), ("IFUNC_TLS_PEERS", public)])
}
