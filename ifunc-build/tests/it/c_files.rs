//! C files: ifuncs found by their symbols, images, libraries.

use std::fs;
use std::path::PathBuf;

use crate::common::files::Files;
use crate::common::loaded::{Loaded, process_symbol};
use crate::common::{exports, open_now};
use ifunc_abi::image::{EntryFlags, Image, ImportFlags};
use ifunc_build::{COptions, Language, Progress, Quiet, build_c, read_library};

/// Both argument orders, an import of the target, a weak one, and one of libc.
const TWO: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <string.h>
uint64_t of_the_target(uint64_t);
__attribute__((weak)) uint64_t perhaps(uint64_t);

size_t slides_payload_bound(const void *args, size_t n) { return n + 1; }
int slides_payload_init(const void *args, size_t n, void *payload, size_t *size)
{
    memcpy(payload, args, n);
    *size = n;
    return 0;
}
void slides_main(void *payload, size_t n, void *target)
{
    uint64_t by;
    memcpy(&by, payload, 8);
    *(uint64_t *)target = of_the_target(by) + (perhaps ? perhaps(1) : 0);
}

size_t paper_payload_get_max_size(const void *args, size_t n) { return 16; }
int paper_payload_init(void *payload, size_t size, const void *args, size_t n)
{
    memset(payload, 7, size);
    return 0;
}
void paper_main(void *payload, size_t n, void *target)
{
    __int128 wide = *(const int64_t *)payload;
    *(uint64_t *)target = (uint64_t)(wide * wide / (n + 1));
}
"#;

#[test]
fn a_file_may_hold_several_ifuncs() {
    let files = Files::new(&[("two.c", TWO)]);
    let built = files.build(&["two.c"]);
    let [paper, slides] = &built[..] else {
        panic!("{built:?}")
    };
    assert_eq!(
        (&*paper.name, &*slides.name, slides.language),
        ("paper", "slides", Language::C)
    );
    assert_eq!(slides.path, files.path("target/release/slides.so"));
    assert_eq!(slides.id, *blake3::hash(&slides.image).as_bytes());

    let image = Image::parse(&slides.image).unwrap();
    let entry = image.entries().next().unwrap();
    assert_eq!(entry.flags, EntryFlags::IGNORE_RESULT);
    assert_eq!(
        (entry.payload_align, entry.payload, entry.target, entry.answer),
        (16, 0, 0, 0)
    );
    let imports: Vec<_> = image
        .imports()
        .map(|i| (i.symbol, i.flags.contains(ImportFlags::WEAK)))
        .collect();
    assert_eq!(imports, [("of_the_target", false), ("perhaps", true)]);
    let image = Image::parse(&paper.image).unwrap();
    assert_eq!(image.imports().len(), 0, "128-bit division comes from libgcc");

    let mut target = 0_u64;
    let loaded = Loaded::new(&paper.image, process_symbol).unwrap();
    // SAFETY: payload and target have the types that the function takes.
    unsafe { loaded.run(&mut 1_000_000_i64.to_le_bytes(), &mut target) };
    assert_eq!(target, 1_000_000_000_000 / 9);
    extern "C" fn of_the_target(x: u64) -> u64 {
        x + 2
    }
    let loaded = Loaded::new(&slides.image, |s| {
        (s == "of_the_target").then_some(of_the_target as *const () as usize)
    });
    // SAFETY: payload and target have the types that the function takes.
    unsafe { loaded.unwrap().run(&mut 40_u64.to_le_bytes(), &mut target) };
    assert_eq!(target, 42);

    for (ifunc, convention) in [(paper, "max-size"), (slides, "bound")] {
        let library = read_library(&ifunc.path).unwrap();
        assert_eq!(
            (library.images.len(), &*library.images[0].name),
            (1, &*ifunc.name)
        );
        assert_eq!(
            library.images[0]
                .about()
                .entry(&library.images[0].name)
                .convention(),
            Some(convention)
        );
        assert_eq!(library.images[0].image, ifunc.image);
    }
}

#[test]
fn libraries_open_without_the_target() {
    let files = Files::new(&[("two.c", TWO)]);
    let built = files.build(&["two.c"]);
    let [paper, slides] = &built[..] else {
        panic!("{built:?}")
    };
    assert_eq!(
        exports(&slides.path),
        ["slides_main", "slides_payload_bound", "slides_payload_init"]
    );
    assert_eq!(
        exports(&paper.path),
        ["paper_main", "paper_payload_get_max_size", "paper_payload_init"]
    );
    let library = open_now(&slides.path);
    type Init = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize) -> i32;
    // SAFETY: the function has this type.
    let init = unsafe { library.get::<Init>(b"slides_payload_init") }.unwrap();
    let (mut payload, mut size) = ([0; 8], 8);
    // SAFETY: the buffer has `size` bytes.
    let status = unsafe { init(b"abc".as_ptr(), 3, payload.as_mut_ptr(), &raw mut size) };
    assert_eq!(status, 0);
    assert_eq!((&payload[..3], size), (&b"abc"[..], 3));
    let library = open_now(&paper.path);
    type MaxSize = unsafe extern "C" fn(*const u8, usize) -> usize;
    // SAFETY: the function has this type.
    let max_size = unsafe { library.get::<MaxSize>(b"paper_payload_get_max_size") }.unwrap();
    // SAFETY: the function does not read its arguments.
    assert_eq!(unsafe { max_size(std::ptr::null(), 0) }, 16);
}

#[test]
fn what_did_not_change_is_not_written() {
    let files = Files::new(&[("two.c", TWO)]);
    let first = files.build(&["two.c"]);
    assert!(first.iter().all(|b| !b.fresh));
    let again = files.build(&["two.c"]);
    assert!(again.iter().all(|b| b.fresh));
    fs::write(files.path("two.c"), TWO.replace("n + 1)", "n + 2)")).unwrap();
    let changed = files.build(&["two.c"]);
    assert!(changed[0].id != first[0].id && !changed[0].fresh);
    assert_eq!(
        changed[1].id, first[1].id,
        "the image of the other ifunc is the same"
    );
    let left: Vec<_> = fs::read_dir(files.path("target/release"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".so"))
        .collect();
    assert_eq!(left, [""; 0], "temporary files remain");

    fs::write(&first[0].path, b"truncated").unwrap();
    assert!(
        !files.build(&["two.c"])[0].fresh,
        "a library that was damaged is made again"
    );
}

#[test]
fn flags_of_the_compiler_are_stated() {
    let files = Files::new(&[("two.c", TWO)]);
    let options = COptions {
        cflags: vec!["-march=x86-64-v3".into()],
        ..files.options()
    };
    let built = files.build_with(&["two.c"], &options);
    assert_eq!(Image::parse(&built[0].image).unwrap().cpu_features(), 0b011);
    let built = files.build(&["two.c"]);
    assert_eq!(Image::parse(&built[0].image).unwrap().cpu_features(), 0);
}

#[test]
fn flags_that_no_level_covers_are_refused() {
    let files = Files::new(&[("two.c", TWO)]);
    let says = |flags: &[&str], texts: &[&str]| {
        let cflags = flags.iter().map(|&flag| flag.into()).collect();
        let options = COptions {
            cflags,
            ..files.options()
        };
        let refusal = build_c(&[files.path("two.c")], &options, &mut Quiet)
            .unwrap_err()
            .to_string();
        for text in texts {
            assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
        }
    };
    says(
        &["-DX", "-maes"],
        &["`-maes` enables", "__AES__", "`-march=x86-64` is"],
    );
    says(
        &["-march=haswell"],
        &["`-march=haswell` enables", "__RDRND__", "`-march=x86-64-v3` is"],
    );
    says(
        &["-march=x86-64-v4", "-mavx512vnni"],
        &["__AVX512VNNI__", "`-march=x86-64-v4` is"],
    );
}

#[test]
fn half_an_ifunc_is_refused() {
    let both = format!("{TWO}\nsize_t paper_payload_bound(const void *a, size_t n) {{ return 0; }}\n");
    let files = Files::new(&[
        ("both.c", &both),
        (
            "neither.c",
            &TWO.replace("size_t slides_payload_bound", "size_t slides_bound"),
        ),
        (
            "static.c",
            &TWO.replace(
                "void slides_main",
                "__attribute__((used)) static void slides_main",
            ),
        ),
        ("nothing.c", "int helper(int x) { return x; }"),
        ("wrong.c", "int broken(void) { return undeclared_variable; }"),
        (
            "tls.c",
            &TWO.replace(
                "__int128 wide =",
                "static __thread volatile uint64_t local; __int128 wide = ++local +",
            ),
        ),
    ]);
    let says = |file: &str, text: &str| {
        let refusal = files.refusal(file);
        assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
    };
    says(
        "both.c",
        "both `paper_payload_bound` and `paper_payload_get_max_size` are there",
    );
    says(
        "neither.c",
        "neither `slides_payload_bound` nor `slides_payload_get_max_size` is there",
    );
    says("static.c", "`slides_main` is not");
    says("nothing.c", "no ifunc is there");
    says("wrong.c", "undeclared_variable");
    says("tls.c", "thread-local variable: `local");
    says("absent.c", "cannot read `");
    let options = COptions {
        cflags: vec!["-flto".into()],
        ..files.options()
    };
    let refusal = build_c(&[files.path("nothing.c")], &options, &mut Quiet).unwrap_err();
    assert!(
        refusal.to_string().contains("help: compile without `-flto`"),
        "{refusal}"
    );
}

#[test]
fn what_init_needs_and_nobody_has_is_a_warning() {
    struct Warnings(String);
    impl Progress for Warnings {
        fn diagnostic(&mut self, rendered: &str) {
            self.0.push_str(rendered);
        }
    }
    let text = TWO
        .replace("*size = n;", "*size = n + surely_not_there(n);")
        .replace(
            "uint64_t of_the_target(uint64_t);",
            "uint64_t of_the_target(uint64_t), surely_not_there(uint64_t);",
        );
    let files = Files::new(&[("warned.c", &text)]);
    let mut warnings = Warnings(String::new());
    build_c(&[files.path("warned.c")], &files.options(), &mut warnings).unwrap();
    assert!(warnings.0.contains("surely_not_there"), "{}", warnings.0);
    assert!(
        !warnings.0.contains("of_the_target"),
        "what the target provides is no warning: {}",
        warnings.0
    );
}

const NEIGHBOUR: &str = r#"
#include <stddef.h>
#include <stdint.h>
size_t NAME_payload_bound(const void *args, size_t n) { return n; }
int NAME_payload_init(const void *args, size_t n, void *payload, size_t *size) { *size = 0; return 0; }
"#;

#[test]
fn what_another_ifuncs_file_defines_is_there() {
    let one = NEIGHBOUR.replace("NAME", "one")
        + "uint64_t util(uint64_t);
           static uint64_t same(uint64_t x) { return x + 1; }
           void one_main(void *p, size_t n, void *target) { *(uint64_t *)target = util(same(n)); }";
    let two = NEIGHBOUR.replace("NAME", "two")
        + "uint64_t of_the_target(uint64_t);
           uint64_t util(uint64_t x) { return x * 3; }
           uint64_t same(uint64_t x) { return x + 2; }
           void two_main(void *p, size_t n, void *target) { *(uint64_t *)target = of_the_target(util(same(n))); }";
    let files = Files::new(&[("one.c", &one), ("two.c", &two)]);
    let built = files.build(&["one.c", "two.c"]);
    let mut target = 0_u64;
    let loaded = Loaded::new(&built[0].image, |_| None).unwrap();
    // SAFETY: the target has the type that the function takes, and it does not read the payload.
    unsafe { loaded.run(&mut [0; 4], &mut target) };
    assert_eq!(target, 15);
    for ifunc in &built {
        open_now(&ifunc.path);
        assert_eq!(exports(&ifunc.path).len(), 3);
    }

    // Built alone, it is an import, as a symbol of any other object.
    let built = files.build(&["one.c"]);
    let image = Image::parse(&built[0].image).unwrap();
    assert_eq!(image.imports().map(|i| i.symbol).collect::<Vec<_>>(), ["util"]);
}

#[test]
fn definitions_that_rival_are_refused() {
    let entry = |name: &str, rest: &str| {
        NEIGHBOUR.replace("NAME", name)
            + "uint64_t util(uint64_t), inner(uint64_t);"
            + rest
            + &format!(
                "void {name}_main(void *p, size_t n, void *target) {{ *(uint64_t *)target = util(n); }}"
            )
    };
    let inner = "__attribute__((noinline)) uint64_t inner(uint64_t x) { return x + 1; }";
    let util = "uint64_t util(uint64_t x) { return inner(x); }";
    let files = Files::new(&[
        ("one.c", &entry("one", inner)),
        ("two.c", &entry("two", &format!("{inner} {util}"))),
        ("three.c", &entry("three", &format!("{inner} {util}"))),
    ]);
    let refusal = |names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| files.path(name)).collect();
        let options = COptions {
            cflags: vec!["-fsemantic-interposition".into()],
            target_dir: Some(files[0].with_file_name("target")),
            ..COptions::default()
        };
        build_c(&files, &options, &mut Quiet).unwrap_err().to_string()
    };
    let says = |refusal: &str, texts: [&str; 3]| {
        for text in texts {
            assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
        }
    };
    says(
        &refusal(&["one.c", "two.c", "three.c"]),
        [
            "symbol that is defined twice: `util` (in two.o",
            "and in three.o",
            "help: ",
        ],
    );
    // `util` of `two.c` means the `inner` beside it.
    says(
        &refusal(&["one.c", "two.c"]),
        [
            "symbol that is defined twice: `inner` (in one.o",
            "and in two.o",
            "help: ",
        ],
    );
}

/// A folder's `libNAME.a` of one file.
fn archive(files: &Files, file: &str) -> PathBuf {
    let object = files.path(file).with_extension("o");
    let archive = object.with_extension("a");
    let run = |command: &mut std::process::Command| assert!(command.status().unwrap().success());
    run(std::process::Command::new("cc")
        .args(["-c", "-O2", "-fPIC", "-o"])
        .arg(&object)
        .arg(files.path(file)));
    let _ = fs::remove_file(&archive);
    run(std::process::Command::new("ar")
        .arg("rcs")
        .arg(&archive)
        .arg(&object));
    archive
}

/// `wk_main` and `wk_payload_init` both call `my_crc`; the entry alone calls `of_the_target`.
const CHECKED: &str = r#"
#include <stddef.h>
#include <stdint.h>
uint64_t of_the_target(uint64_t), my_crc(uint64_t);
static uint64_t checked(uint64_t x) { return my_crc(x) ^ x; }
size_t wk_payload_bound(const void *args, size_t n) { return 8; }
int wk_payload_init(const void *args, size_t n, void *payload, size_t *size)
{
    *(uint64_t *)payload = checked(n);
    *size = 8;
    return 0;
}
void wk_main(void *payload, size_t n, void *target) { *(uint64_t *)target = of_the_target(checked(n)); }
"#;

#[test]
fn what_init_shares_with_the_entry_is_pulled_out_of_archives() {
    let files = Files::new(&[
        ("wk.c", CHECKED),
        (
            "crc.c",
            "unsigned long my_crc(unsigned long x) { return x + 1000; }",
        ),
    ]);
    let options = |files: &Files| COptions {
        link_args: vec![archive(files, "crc.c").display().to_string()],
        ..files.options()
    };
    let built = files.build_with(&["wk.c"], &options(&files));
    let image = Image::parse(&built[0].image).unwrap();
    let imports: Vec<_> = image.imports().map(|i| i.symbol).collect();
    assert_eq!(imports, ["my_crc", "of_the_target"]);
    let payload = || {
        type Init = unsafe extern "C" fn(*const u8, usize, *mut u64, *mut usize) -> i32;
        let (mut payload, mut size) = (0, 8);
        let library = open_now(&files.path("target/release/wk.so"));
        // SAFETY: the function has this type, and the buffer eight bytes.
        unsafe {
            let init = library.get::<Init>(b"wk_payload_init").unwrap();
            assert_eq!(init(std::ptr::null(), 7, &raw mut payload, &raw mut size), 0);
        }
        payload
    };
    assert_eq!(payload(), 1007 ^ 7);

    // Another archive of the same name yields another library.
    fs::write(
        files.path("crc.c"),
        "unsigned long my_crc(unsigned long x) { return x + 2000; }",
    )
    .unwrap();
    let again = files.build_with(&["wk.c"], &options(&files));
    assert!(!again[0].fresh && again[0].id == built[0].id);
    assert_eq!(payload(), 2007 ^ 7);

    // Without the arguments the library loses their effect.
    let without = files.build(&["wk.c"]);
    assert!(!without[0].fresh && without[0].id == built[0].id);
    assert!(files.build(&["wk.c"])[0].fresh);
}
