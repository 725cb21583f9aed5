//! Helpers that several tests of the builder share.

#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod files;
#[path = "../../../ifunc-link/tests/common/loaded.rs"]
pub mod loaded;
#[path = "../../../ifunc-link/tests/common/plan.rs"]
pub mod plan;
mod warm;
pub mod workspace;

/// Opens a library as a source does: every strong symbol must resolve.
pub fn open_now(path: &std::path::Path) -> libloading::os::unix::Library {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: libraries of these tests have no constructors.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.unwrap()
}

/// The names that a library exports.
pub fn exports(path: &std::path::Path) -> Vec<String> {
    use object::{Object, ObjectSymbol};
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let mut names: Vec<String> = file
        .dynamic_symbols()
        .filter(|s| s.is_definition())
        .map(|s| s.name().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Whether a library defines a function, which it need not export.
pub fn defines(path: &std::path::Path, name: &str) -> bool {
    use object::{Object, ObjectSymbol};
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name));
    symbol.is_some_and(|symbol| symbol.is_definition())
}
