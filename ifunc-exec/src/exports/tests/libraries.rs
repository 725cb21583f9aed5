//! Shared libraries that are loaded and replaced.

use std::sync::Arc;

use ifunc_abi::image::{ImageParts, ImportFlags};
use ifunc_abi::status::Rejection;

use super::{finds, run};
use crate::exports::ExportError;
use crate::tests::{executor, install, options};
use crate::{Executor, HostSymbols, ImageExecutor, InvalidSoname};

/// A library that defines these things.
fn library(folder: &std::path::Path, name: &str, source: &str) -> std::path::PathBuf {
    let (c, library) = (
        folder.join(name).with_extension("c"),
        folder.join(name).with_extension("so"),
    );
    std::fs::write(&c, source).unwrap();
    // Tests for another machine are given its compiler.
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut cc = std::process::Command::new(cc);
    let status = cc
        .args(["-shared", "-fPIC"])
        .arg(format!("-Wl,-soname,{name}"))
        .arg("-o")
        .arg(&library)
        .arg(&c)
        .status()
        .unwrap();
    assert!(status.success());
    library
}

#[test]
fn a_library_is_loaded_and_replaced() {
    const LIBM: &str = "libm.so.6";
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let parts = ImageParts {
        needed: vec![LIBM.into()],
        ..finds("cosf", "", ImportFlags::NONE)
    };
    assert_eq!(
        install(&executor, &parts).unwrap_err().reason,
        Rejection::NeededLibrary
    );
    let absent = "libifunc-is-not-there.so.7";
    // SAFETY: there is no such library, and the tests are linked with the other one anyway.
    let (error, loaded) = unsafe { (exports.load_library(absent), exports.load_library(LIBM)) };
    assert!(matches!(error, Err(ExportError::Library { .. })), "{error:?}");
    // SAFETY: nothing of that name is opened.
    let error = unsafe { exports.load_library("lib/m") }.unwrap_err();
    assert!(
        matches!(&error, ExportError::Soname(InvalidSoname(name)) if name == "lib/m"),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("help: a name without a path"),
        "{error}"
    );
    loaded.unwrap();
    let finds = install(&executor, &parts).unwrap();
    let mut thread = executor.thread().unwrap();
    let first = run(&mut thread, &finds).unwrap();

    let folder = std::env::temp_dir().join(format!("ifunc-exports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let one = library(&folder, "one", "float cosf(float x) { return x; }");
    let two = library(&folder, "two", "float cosf(float x) { return -x; }");
    let other = library(&folder, "other", "float sinf(float x) { return x; }");
    // SAFETY: they have no constructors, and the image calls nothing.
    let replace = |file| unsafe { exports.replace_library(LIBM, file) };
    replace(&one).unwrap();
    let second = run(&mut thread, &finds).unwrap();
    // It is loaded: by which file does not matter.
    // SAFETY: as above.
    unsafe { exports.load_library(LIBM) }.unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(second.clone()));
    let is_open = |file: &std::path::Path| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(file.to_str().unwrap())
    };
    assert!(is_open(&one));
    let error = replace(&other).unwrap_err();
    assert!(
        matches!(&error, ExportError::Image { detail, .. } if detail.starts_with("cosf")),
        "{error}"
    );
    replace(&two).unwrap();
    let third = run(&mut thread, &finds).unwrap();
    assert!(first != second && second != third && first != third);
    assert!(is_open(&two) && !is_open(&one));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_library_that_could_not_be_opened_is_loaded_when_it_can() {
    const SONAME: &str = "libifunc-late.so.1";
    let mut symbols = HostSymbols::new().unwrap();
    // SAFETY: there is no such library.
    unsafe { symbols.allow_library(SONAME) }.unwrap();
    let executor = ImageExecutor::new(options(), symbols, Arc::new(())).unwrap();
    let parts = ImageParts {
        needed: vec![SONAME.into()],
        ..finds("ifunc_late", "", ImportFlags::NONE)
    };
    let refusal = install(&executor, &parts).unwrap_err();
    assert_eq!(refusal.reason, Rejection::NeededLibrary);
    let folder = std::env::temp_dir().join(format!("ifunc-late-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = library(&folder, SONAME, "int ifunc_late(void) { return 7; }");
    // The linker of the process finds an open library by its soname.
    // SAFETY: it has no constructors.
    let opened = unsafe { libloading::Library::new(&library) }.unwrap();
    // SAFETY: as above.
    unsafe { executor.exports().load_library(SONAME) }.unwrap();
    let finds = install(&executor, &parts).unwrap();
    assert_eq!(run(&mut executor.thread().unwrap(), &finds).unwrap().len(), 1);
    drop(opened);
    std::fs::remove_dir_all(folder).unwrap();
}
