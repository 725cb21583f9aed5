//! The debug object of an image.

use std::path::{Path, PathBuf};

use crate::common::sources::{Compiler, Machine, compilers, compilers_for};
use ifunc_link::{Imports, Input, Linked, Linker, Request, Role};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

const SOURCE: &str = r#"
#include <stdint.h>
extern void announce(uint64_t value);
static uint64_t calls;
uint64_t weights[2] = { 1, 2 };
__attribute__((noinline)) static uint64_t inner(uint64_t n) { calls++; announce(n); return n * weights[n & 1]; }
__attribute__((noinline)) uint64_t unused(uint64_t n) { return inner(n) + 1; }
uint32_t deep_main(const uint64_t *payload) { return inner(*payload) + calls; }
"#;

/// An object of the source above.
fn object(compiler: Compiler, folder: &Path, flags: &[&str]) -> Vec<u8> {
    let (source, out): (PathBuf, PathBuf) = (folder.join("deep.c"), folder.join("deep.o"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut cc = compiler.command("c");
    cc.args(["-c", "-O2", "-fPIC", "-ffunction-sections", "-fdata-sections"]);
    cc.args(flags).arg("-o").arg(&out).arg(&source);
    assert!(cc.status().unwrap().success());
    std::fs::read(out).unwrap()
}

fn link(object: &[u8]) -> Linked {
    let input = Input {
        name: "deep.o",
        data: object,
        role: Role::User,
    };
    let linker = Linker::open(&[input]).unwrap();
    linker
        .link_explained(&Request::new("deep", Imports::Any))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Names in the debug object, with their sections.
fn names(linked: &Linked) -> Vec<(String, String)> {
    let file = object::File::parse(&*linked.debug).unwrap();
    let named = file.symbols().filter_map(|symbol| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        Some((symbol.name().ok()?.to_owned(), section.name().ok()?.to_owned()))
    });
    named.filter(|(name, _)| !name.is_empty()).collect()
}

fn has_lines(linked: &Linked) -> bool {
    let file = object::File::parse(&*linked.debug).unwrap();
    file.section_by_name(".debug_line").is_some()
}

#[test]
fn it_names_what_the_image_is_made_of_and_changes_nothing() {
    for &compiler in compilers().iter().chain(compilers_for(Machine::AArch64)) {
        names_what_the_image_is_made_of(compiler);
    }
}

fn names_what_the_image_is_made_of(compiler: Compiler) {
    let object = |folder: &Path, flags: &[&str]| object(compiler, folder, flags);
    let folder = tempfile::tempdir().unwrap();
    let bare = link(&object(folder.path(), &["-g0"]));
    let debug = link(&object(folder.path(), &["-g"]));
    assert_eq!(
        bare.image, debug.image,
        "debug information is no part of an image"
    );
    assert!(!has_lines(&bare) && has_lines(&debug));
    assert_eq!(debug, link(&object(folder.path(), &["-g"])), "the same again");
    for linked in [&bare, &debug] {
        let names = names(linked);
        for (name, section) in [
            ("deep_main", ".text"),
            ("inner", ".text"),
            ("announce@plt", ".text"),
            ("__ifunc_slot", ".text"),
            ("weights", ".data"),
            ("calls", ".data"),
        ] {
            assert!(
                names.iter().any(|(n, s)| n == name && s == section),
                "{name}: {names:?}"
            );
        }
        assert!(!names.iter().any(|(name, _)| name == "unused"), "{names:?}");
    }
    // Call frames, of which the image has none: of both functions, in either format of the compiler.
    for flags in [
        ["-g", "-fno-asynchronous-unwind-tables"],
        ["-g0", "-fasynchronous-unwind-tables"],
    ] {
        let linked = link(&object(folder.path(), &flags));
        let file = object::File::parse(&*linked.debug).unwrap();
        let frames = file.section_by_name(".debug_frame").expect("call frames");
        assert_eq!(frames.relocations().count(), 2, "{flags:?}");
    }
}

#[test]
fn broken_debug_information_is_left_out_and_fails_nothing() {
    for &compiler in compilers().iter().chain(compilers_for(Machine::AArch64)) {
        broken_debug_information_is_left_out(compiler);
    }
}

fn broken_debug_information_is_left_out(compiler: Compiler) {
    let object = |folder: &Path, flags: &[&str]| object(compiler, folder, flags);
    let folder = tempfile::tempdir().unwrap();
    let whole = object(folder.path(), &["-g"]);
    let expected = link(&whole);
    let places: Vec<(u64, u64)> = {
        let file = object::File::parse(&*whole).unwrap();
        file.sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".rela.debug_")))
            .filter_map(|section| section.file_range())
            .collect()
    };
    assert!(places.len() >= 3);
    // Types, symbols and offsets that cannot be.
    for byte in [0, 8, 12] {
        let mut broken = whole.clone();
        for &(start, _) in &places {
            broken[start as usize + byte..][..4].copy_from_slice(&0x00ff_ffffu32.to_le_bytes());
        }
        let linked = link(&broken);
        assert_eq!(linked.image, expected.image, "{byte}");
        assert!(!has_lines(&linked), "{byte}");
        assert_eq!(names(&linked), names(&expected), "{byte}");
    }
}
