//! A piece of Rust that uses much of `core` and `alloc`, as an image beside the same text compiled into this test.

use std::path::Path;
use std::process::Command;

use crate::common::loaded::Loaded;
use crate::common::plan::{hex, outcome, plan_of};
use crate::common::workspace::Workspace;
use crate::cross::{EMULATOR, GCC, TRIPLE, has_core, has_tools};
use ifunc_abi::image::Image;
use ifunc_build::{BuildOptions, BuiltIfunc, Quiet, build_packages};

mod native {
    include!("../rust/work.rs");
}

extern "C" fn allocate(size: usize, align: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(size, align).unwrap();
    // SAFETY: images never ask for zero bytes.
    unsafe { std::alloc::alloc(layout) }
}

extern "C" fn deallocate(ptr: *mut u8, size: usize, align: usize) {
    let layout = std::alloc::Layout::from_size_align(size, align).unwrap();
    // SAFETY: the image gives back what it got, with the layout it asked for.
    unsafe { std::alloc::dealloc(ptr, layout) }
}

extern "C" fn reallocate(ptr: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(size, align).unwrap();
    // SAFETY: as above.
    unsafe { std::alloc::realloc(ptr, layout, new_size) }
}

extern "C" fn panicked() -> ! {
    std::process::abort()
}

const SEEDS: [u64; 5] = [0, 1, 42, 1 << 33, u64::MAX];

/// The image, for a triple.
fn built(triple: Option<&str>) -> BuiltIfunc {
    let workspace = Workspace::new(&["corpus"]);
    let ifunc = "#![no_std]
extern crate alloc;
use ifunc::prelude::*;
#[ifunc]
pub fn corpus(seed: u64, result: &mut u64) { *result = work(seed); }
";
    let source = format!("{ifunc}{}", include_str!("../rust/work.rs"));
    workspace.package(
        "corpus",
        "[dependencies]\nifunc = { IFUNC, features = [\"alloc\"] }",
        &source,
    );
    let options = BuildOptions {
        triple: triple.map(Into::into),
        ..workspace.options()
    };
    build_packages(&options, &mut Quiet).unwrap().remove(0)
}

#[test]
#[ignore = "nightly: half a minute of compilation, beside the corpus of every commit"]
fn an_image_computes_what_the_same_text_computes_here() {
    let built = built(None);
    let image = Image::parse(&built.image).unwrap();
    println!(
        "{} bytes, {} relocations",
        built.image.len(),
        image.relocation_count()
    );
    let loaded = Loaded::new(&built.image, |symbol| match symbol {
        "__ifunc_alloc" => Some(allocate as *const () as usize),
        "__ifunc_dealloc" => Some(deallocate as *const () as usize),
        "__ifunc_realloc" => Some(reallocate as *const () as usize),
        "__ifunc_panic" => Some(panicked as *const () as usize),
        _ => None,
    })
    .unwrap();
    for seed in SEEDS {
        let mut result = 0_u64;
        // SAFETY: the payload is a `u64`, the target too.
        let status = unsafe { loaded.run(&mut seed.to_le_bytes(), &mut result) };
        assert_eq!((status, result), (0, native::work(seed)), "seed {seed}");
    }
}

/// What the runtime provides to the image on AArch64.
const RUNTIME: &str = r#"
#include <stdlib.h>
#include <string.h>
void *__ifunc_alloc(size_t size, size_t align) { return aligned_alloc(align, (size + align - 1) / align * align); }
void __ifunc_dealloc(void *memory, size_t size, size_t align) { free(memory); }
void *__ifunc_realloc(void *memory, size_t size, size_t align, size_t new_size)
{
    void *grown = __ifunc_alloc(new_size, align);
    memcpy(grown, memory, size < new_size ? size : new_size);
    free(memory);
    return grown;
}
void __ifunc_panic(void) { abort(); }
"#;

#[test]
#[ignore = "nightly: a minute of compilation"]
fn an_image_for_aarch64_computes_what_the_same_text_computes_here() {
    if !has_tools() || !has_core() {
        return;
    }
    let built = built(Some(TRIPLE));
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("plan"), plan_of(&Image::parse(&built.image).unwrap())).unwrap();
    std::fs::write(path("runtime.c"), RUNTIME).unwrap();
    let compile = |args: &[&str], source: &Path, out: &str| {
        let mut command = Command::new(GCC);
        command.args(args).arg(source).arg("-o").arg(path(out));
        assert!(command.status().unwrap().success());
    };
    let loader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifunc-link/tests/common/loader.c");
    compile(&["-O1"], &loader, "loader");
    compile(&["-shared", "-fPIC"], &path("runtime.c"), "runtime.so");
    let align = Image::parse(&built.image).unwrap().rx_align().to_string();
    let output = Command::new(EMULATOR)
        .args(["-L", "/usr/aarch64-linux-gnu"])
        .args([path("loader"), path("runtime.so")])
        .args(["image", &align])
        .arg(path("plan"))
        .args(SEEDS.map(|seed| hex(&seed.to_le_bytes())))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let outcomes: Vec<(u32, u64)> = text
        .lines()
        .map(outcome)
        .map(|(status, out)| (status, out[0]))
        .collect();
    assert_eq!(outcomes, SEEDS.map(|seed| (0, native::work(seed))));
}
