//! The crates of this project, which are no ifunc packages.

/// Crates that depend on `ifunc` and hold no ifuncs.
const OWN: [&str; 9] = [
    "cargo-ifunc",
    "ifunc",
    "ifunc-abi",
    "ifunc-build",
    "ifunc-exec",
    "ifunc-macros",
    "ifunc-proto",
    "ifunc-rt",
    "ifunc-test",
];

/// Whether a package of this name belongs to this project. It is no ifunc package, even if it depends on `ifunc` as one does.
#[must_use]
pub fn is_own_crate(name: &str) -> bool {
    OWN.contains(&name)
}
