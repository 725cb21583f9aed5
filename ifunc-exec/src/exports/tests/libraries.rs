//! Shared libraries that are loaded and replaced.

use ifunc_abi::image::{ImageParts, ImportFlags};
use ifunc_abi::status::Rejection;

use super::{finds, run};
use crate::exports::ExportError;
use crate::tests::{executor, install};
use crate::{Executor, InvalidSoname};

/// A library that defines these things.
fn library(folder: &std::path::Path, name: &str, source: &str) -> std::path::PathBuf {
    let (c, library) = (
        folder.join(name).with_extension("c"),
        folder.join(name).with_extension("so"),
    );
    std::fs::write(&c, source).unwrap();
    let mut cc = std::process::Command::new("cc");
    let status = cc
        .args(["-shared", "-fPIC", "-o"])
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
