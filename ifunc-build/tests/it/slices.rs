//! Libraries with several slices: what they hold, and what cannot be one library.

use ifunc_abi::image::Image;
use ifunc_abi::slices::Slices;
use ifunc_build::{
    BuildError, COptions, Cpu, LibraryError, Quiet, Slice, build_c, embedded_images, read_library,
};

use crate::common::files::Files;

fn options(files: &Files, levels: &[Cpu]) -> COptions {
    COptions {
        target_dir: Some(files.path("out")),
        cpu: levels[0],
        slices: levels.iter().copied().map(Slice::of_cpu).collect(),
        ..COptions::default()
    }
}

/// Counts bits, which is one instruction from v2 on.
const ONES: &str = "\
    #include <stddef.h>\n\
    size_t ones_payload_bound(void *args, size_t n) { (void)args; return n; }\n\
    int ones_payload_init(void *args, size_t n, void *payload, size_t *size) { (void)args; (void)payload; *size = n; return 0; }\n\
    void ones_main(unsigned long *payload, size_t n, unsigned long *target) { if (n == 8) *target = __builtin_popcountl(*payload); }\n";

#[test]
fn a_library_holds_an_image_for_each_level() {
    let files = Files::new(&[("ones.c", ONES)]);
    let options = options(&files, &[Cpu::V1, Cpu::V3, Cpu::V2, Cpu::V3]);
    let build = || build_c(&[files.path("ones.c")], &options, &mut Quiet).unwrap();
    let built = build();
    let [ones] = &built[..] else {
        panic!("{built:?}");
    };
    let levels: Vec<String> = ones
        .other_slices
        .iter()
        .map(|slice| slice.machine.to_string())
        .collect();
    assert_eq!(levels, ["x86-64-v2", "x86-64-v3"]);
    let library = read_library(&ones.path).unwrap();
    let stated: Vec<u64> = library
        .images
        .iter()
        .map(|image| Image::parse(&image.image).unwrap().cpu_features())
        .collect();
    assert_eq!(stated, [0, 0b1, 0b11]);
    let counts = |image: &[u8]| image.windows(4).any(|bytes| bytes == [0xf3, 0x48, 0x0f, 0xb8]);
    let counting: Vec<bool> = library.images.iter().map(|image| counts(&image.image)).collect();
    assert_eq!(counting, [false, true, true]);
    for image in &library.images {
        assert!(image.name == "ones" && !image.debug.is_empty());
        assert_eq!(image.about().entry("ones").convention(), Some("bound"));
    }
    // What a program embeds is the table, in which each image is found.
    let embedded = ones.embedded();
    assert_eq!(Slices::parse(&embedded).unwrap().native().count(), 3);
    let found = embedded_images(&embedded);
    let found: Vec<_> = found.iter().map(|found| &found.image.image).collect();
    let held: Vec<_> = library.images.iter().map(|image| &image.image).collect();
    assert_eq!(found, held);
    assert!(build()[0].fresh, "nothing has changed");
}

#[test]
fn a_library_with_one_image_has_the_same_form() {
    let files = Files::new(&[("ones.c", ONES)]);
    let built = build_c(&[files.path("ones.c")], &options(&files, &[Cpu::V1]), &mut Quiet).unwrap();
    assert!(built[0].other_slices.is_empty());
    assert_eq!(built[0].embedded(), built[0].image);
    assert_eq!(read_library(&built[0].path).unwrap().images.len(), 1);
    // A table of another version.
    let mut bytes = std::fs::read(&built[0].path).unwrap();
    let table = memchr::memmem::find(&bytes, b"IFNS\x01").unwrap();
    bytes[table + 4] = 9;
    let changed = files.path("changed.so");
    std::fs::write(&changed, &bytes).unwrap();
    let error = read_library(&changed).unwrap_err();
    assert!(matches!(error, LibraryError::Slices { .. }));
    let text = error.to_string();
    assert!(
        text.contains("its table of slices is of version 9, this version reads 1; help: "),
        "{text}"
    );
}

#[test]
fn what_is_no_slice_of_one_library_is_refused() {
    let refused = |file: &str, cflags: &[&str]| {
        let files = Files::new(&[("ones.c", file)]);
        let options = COptions {
            cflags: cflags.iter().map(|&flag| flag.to_owned()).collect(),
            ..options(&files, &[Cpu::V1, Cpu::V3])
        };
        let error = build_c(&[files.path("ones.c")], &options, &mut Quiet).unwrap_err();
        assert!(matches!(error, BuildError::Slices { .. }), "{error}");
        assert!(!files.path("out/release/ones.so").exists());
        error.to_string()
    };
    let text = refused(ONES, &["-march=x86-64-v2"]);
    assert!(
        text.contains("the slices of `ones` do not belong together: two are for x86-64-v2"),
        "{text}"
    );
    let absent = format!(
        "#ifndef __AVX2__\n{ONES}#else\n{}\n#endif\n",
        ONES.replace("ones", "two")
    );
    let text = refused(&absent, &[]);
    assert!(text.contains("one has no such ifunc"), "{text}");
    let declared = format!("{ONES}#ifdef __AVX2__\nconst char ones_main_is_shareable = 1;\n#endif\n");
    let text = refused(&declared, &[]);
    assert!(
        text.contains("that for x86-64-v3: its entry `ones` has declarations other than in the first slice"),
        "{text}"
    );
}
