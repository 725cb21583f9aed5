//! A piece of Rust that uses much of `core` and `alloc`, as an image beside the same text compiled into this test.

use crate::common::loaded::Loaded;
use crate::common::workspace::Workspace;
use ifunc_abi::image::Image;

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

#[test]
#[ignore = "nightly: half a minute of compilation, beside the corpus of every commit"]
fn an_image_computes_what_the_same_text_computes_here() {
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
    let built = workspace.build().unwrap();
    let image = Image::parse(&built[0].image).unwrap();
    println!(
        "{} bytes, {} relocations",
        built[0].image.len(),
        image.relocation_count()
    );
    let loaded = Loaded::new(&built[0].image, |symbol| match symbol {
        "__ifunc_alloc" => Some(allocate as *const () as usize),
        "__ifunc_dealloc" => Some(deallocate as *const () as usize),
        "__ifunc_realloc" => Some(reallocate as *const () as usize),
        "__ifunc_panic" => Some(panicked as *const () as usize),
        _ => None,
    })
    .unwrap();
    for seed in [0, 1, 42, 1 << 33, u64::MAX] {
        let mut result = 0_u64;
        // SAFETY: the payload is a `u64`, the target too.
        let status = unsafe { loaded.run(&mut seed.to_le_bytes(), &mut result) };
        assert_eq!((status, result), (0, native::work(seed)), "seed {seed}");
    }
}
