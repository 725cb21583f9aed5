//! Rust packages: from a crate that depends on `ifunc` to images and libraries.

use std::fs;

use crate::common::loaded::Loaded;
use crate::common::workspace::{DEPENDS, Workspace};
use crate::common::{defines, exports, open_now};
use ifunc_abi::image::{EntryFlags, Image, ImageFlags};
use ifunc_build::{
    BuildError, BuildOptions, COptions, Language, Quiet, build_c, build_packages, read_library,
};

const ADD: &str = "#![no_std]
use ifunc::prelude::*;
/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter }
";

#[test]
fn add_is_small_runs_and_stays_as_it_is() {
    let workspace = Workspace::new(&["hello"]);
    workspace.package("hello", DEPENDS, ADD);
    let path = workspace.library("add");
    let built = workspace.build().unwrap();
    let [add] = &built[..] else { panic!("{built:?}") };
    assert_eq!(
        (&*add.name, &add.path, add.language),
        ("add", &path, Language::Rust)
    );
    assert_eq!(add.package.as_deref(), Some("hello"));
    assert!(!add.fresh);
    println!("the image of `add` has {} bytes", add.image.len());
    assert!(
        add.image.len() <= 460,
        "the image of `add` has {} bytes",
        add.image.len()
    );
    let image = Image::parse(&add.image).unwrap();
    let entry = image.entries().next().unwrap();
    assert_eq!(
        (
            image.imports().len(),
            image.relocation_count(),
            entry.payload_align
        ),
        (0, 0, 8)
    );
    assert!(!entry.flags.contains(EntryFlags::IGNORE_RESULT));
    assert!(entry.payload != 0 && entry.target != 0 && entry.answer != 0);

    let loaded = Loaded::new(&add.image, |_| None).unwrap();
    let mut counter = 37_u64;
    // SAFETY: the payload is a `u64`, the target too.
    assert_eq!(unsafe { loaded.run(&mut 5_u64.to_le_bytes(), &mut counter) }, 0);
    assert_eq!(counter, 42);

    // The source calls what cannot panic directly.
    assert!(!defines(&path, "__ifunc_inner_init") && !defines(&path, "__ifunc_panic"));
    let library = read_library(&add.path).unwrap();
    assert_eq!(library.images[0].image, add.image);
    assert_eq!(library.images[0].id(), add.id);
    let about = library.images[0].about().entry(&add.name);
    assert_eq!(
        (about.payload(), about.target(), about.convention()),
        (Some("u64"), Some("u64"), Some("bound"))
    );
    assert_eq!(
        exports(&add.path),
        ["add_main", "add_payload_bound", "add_payload_init"]
    );

    let written = fs::metadata(&add.path).unwrap().modified().unwrap();
    let again = workspace.build().unwrap();
    assert!(again[0].fresh);
    assert_eq!(again[0].id, add.id);
    assert_eq!(
        fs::metadata(&add.path).unwrap().modified().unwrap(),
        written,
        "the library was written again"
    );

    workspace.package("hello", DEPENDS, &ADD.replace("+= delta", "+= delta + 1"));
    let changed = workspace.build().unwrap();
    assert!(!changed[0].fresh && changed[0].id != add.id);

    workspace.package("hello", DEPENDS, &ADD.replace("fn add", "fn add_renamed"));
    assert_eq!(workspace.build().unwrap()[0].name, "add_renamed");
    assert!(
        !path.exists(),
        "the library of an ifunc that is gone is still there"
    );
}

#[test]
fn several_ifuncs_of_a_package_hold_what_each_reaches() {
    let workspace = Workspace::new(&["several"]);
    workspace.package(
        "several",
        DEPENDS,
        r#"#![no_std]
use ifunc::prelude::*;
#[ifunc::import]
unsafe extern "C" { safe fn several_sum(values: &[u64]) -> u64; }
#[ifunc(idempotent)]
pub fn several_total(values: &[u64], total: &mut u64) { *total = several_sum(values); }
#[ifunc(pinned)]
pub fn several_plain(by: u64, total: &u64) -> u64 { by + *total }
#[ifunc(name = "several_renamed")]
pub fn original(index: u64, table: &mut [u64; 4]) -> u64 { table[index as usize] }
"#,
    );
    let built = workspace.build().unwrap();
    let names: Vec<&str> = built.iter().map(|b| &*b.name).collect();
    assert_eq!(names, ["several_plain", "several_renamed", "several_total"]);
    let images: Vec<_> = built.iter().map(|b| Image::parse(&b.image).unwrap()).collect();
    let imports = |index: usize| images[index].imports().map(|i| i.symbol).collect::<Vec<_>>();
    assert_eq!(imports(0), [""; 0]);
    assert_eq!(imports(1), ["__ifunc_panic"], "a bounds check panics");
    assert_eq!(imports(2), ["several_sum"]);
    let flags = |index: usize| {
        (
            images[index].flags(),
            images[index].entries().next().unwrap().flags,
        )
    };
    let computes = ImageFlags::KEEPS_FLOAT_CONTROL;
    assert_eq!(flags(0), (ImageFlags::PINNED.union(computes), EntryFlags::SHARED));
    assert_eq!(flags(2), (computes, EntryFlags::IDEMPOTENT));
    assert!(
        images[1].relocation_count() > 0,
        "a panic's location holds a pointer"
    );

    let import = images[2].imports().next().unwrap();
    let about = &read_library(&built[2].path).unwrap().images[0];
    let signature = about.about().import("several_sum").unwrap();
    let hash = blake3::hash(signature.as_bytes());
    assert_eq!(import.fingerprint.to_le_bytes(), hash.as_bytes()[..8]);

    extern "C" fn several_sum(values: *const u64, len: usize) -> u64 {
        // SAFETY: the image passes a slice.
        unsafe { std::slice::from_raw_parts(values, len) }.iter().sum()
    }
    let loaded = Loaded::new(&built[2].image, |_| Some(several_sum as *const () as usize)).unwrap();
    let mut total = 0_u64;
    let mut payload: Vec<u8> = [1_u64, 2, 39].iter().flat_map(|v| v.to_le_bytes()).collect();
    // SAFETY: the payload is a slice of `u64`, the target is one.
    unsafe { loaded.run(&mut payload, &mut total) };
    assert_eq!(total, 42);

    for ifunc in &built {
        open_now(&ifunc.path);
        assert_eq!(exports(&ifunc.path).len(), 3);
    }
}

#[test]
fn a_panic_in_payload_init_is_an_error_of_it() {
    let workspace = Workspace::new(&["packing"]);
    workspace.package(
        "packing",
        "[dependencies]\nifunc = { IFUNC, features = [\"alloc\"] }",
        r#"#![no_std]
extern crate alloc;
use alloc::vec::Vec;
use ifunc::{DecodeError, EncodeError, abi::text::Text, prelude::*};
#[ifunc::import]
unsafe extern "C" { safe fn packing_not_there(x: u64) -> u64; }
pub struct Packed<'a>(&'a [u8]);
impl<'a> Payload<'a> for Packed<'a> {
    type Source = [u8];
    const TEXT: Text = Text::new().str("packed/1");
    fn bound(source: &[u8]) -> usize { 100 / source.len() }
    fn encode(source: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        let copy: Vec<u8> = source.iter().rev().copied().collect();
        if copy[2] == b'!' { return Err(EncodeError::Refused); }
        out[..copy.len()].copy_from_slice(&copy);
        Ok(copy.len())
    }
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> { Ok(Packed(payload)) }
    fn bound_from_args(args: &[u8]) -> usize { Self::bound(args) }
    fn encode_from_args(args: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> { Self::encode(args, out) }
}
#[ifunc(codec = custom)]
pub fn packing(packed: Packed<'_>, total: &mut u64) { *total = packing_not_there(packed.0.len() as u64); }
"#,
    );
    let built = workspace.build().unwrap();
    assert!(defines(&built[0].path, "__ifunc_inner_init"));
    let library = open_now(&built[0].path);
    type Bound = unsafe extern "C" fn(*const u8, usize) -> usize;
    type Init = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize) -> i32;
    // SAFETY: the functions have these types.
    let (bound, init) = unsafe {
        (
            *library.get::<Bound>(b"packing_payload_bound").unwrap(),
            *library.get::<Init>(b"packing_payload_init").unwrap(),
        )
    };
    let call = |args: &[u8]| {
        let mut payload = [0_u8; 100];
        let mut size = payload.len();
        // SAFETY: the buffer has `size` bytes.
        let status = unsafe { init(args.as_ptr(), args.len(), payload.as_mut_ptr(), &raw mut size) };
        (status, payload[..size.min(100)].to_vec())
    };
    for _ in 0..3 {
        assert_eq!(call(b"abcd"), (0, b"dcba".to_vec()));
        assert_ne!(call(b"a").0, 0, "`copy[2]` panics");
        assert_ne!(call(b"a!b").0, 0x7fff, "returns");
        // SAFETY: an empty slice; dividing by its length panics.
        assert_eq!(unsafe { bound(b"".as_ptr(), 0) }, usize::MAX);
        // SAFETY: a slice.
        assert_eq!(unsafe { bound(b"abcd".as_ptr(), 4) }, 25);
    }
}

#[test]
fn imports_that_the_payload_needs_come_from_the_links_arguments() {
    let workspace = Workspace::new(&["summed"]);
    let source = r#"#![no_std]
use ifunc::{DecodeError, EncodeError, abi::text::Text, prelude::*};
#[ifunc::import]
unsafe extern "C" { safe fn summed_crc(x: u64) -> u64; safe fn summed_elsewhere(x: u64) -> u64; }
pub struct Summed(u64);
impl<'a> Payload<'a> for Summed {
    type Source = u64;
    const TEXT: Text = Text::new().str("summed/1");
    fn bound(_: &u64) -> usize { 8 }
    fn encode(source: &u64, out: &mut [u8]) -> Result<usize, EncodeError> {
        out[..8].copy_from_slice(&summed_crc(*source).to_le_bytes());
        Ok(8)
    }
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Summed(u64::from_le_bytes(payload.try_into().map_err(|_| DecodeError::Invalid)?)))
    }
    fn bound_from_args(_: &[u8]) -> usize { 8 }
    fn encode_from_args(args: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> { Self::encode(&(args.len() as u64), out) }
}
#[ifunc(codec = custom)]
pub fn summed(value: Summed, total: &mut u64) { *total = summed_elsewhere(summed_crc(value.0)); }
"#;
    let archive = workspace.dir.path().join("libcrc.a");
    let manifest = format!("{DEPENDS}\n[package.metadata.ifunc]\nlink-args = [\"../libcrc.a\"]\n");
    workspace.package("summed", &manifest, source);
    workspace.archive(
        &archive,
        "unsigned long summed_crc(unsigned long x) { return x + 1000; }",
    );
    let built = workspace.build().unwrap();
    let library = open_now(&built[0].path);
    type Init = unsafe extern "C" fn(*const u8, usize, *mut u64, *mut usize) -> i32;
    let (mut payload, mut size) = (0, 8);
    // SAFETY: the function has this type, and the buffer eight bytes.
    let status = unsafe {
        let init = library.get::<Init>(b"summed_payload_init").unwrap();
        init(b"abc".as_ptr(), 3, &raw mut payload, &raw mut size)
    };
    assert_eq!((status, payload, size), (0, 1003, 8));
}

#[test]
fn names_may_be_macros_of_c() {
    let workspace = Workspace::new(&["predefined"]);
    workspace.package("predefined", DEPENDS, &ADD.replace("fn add", "fn linux"));
    let built = workspace.build().unwrap();
    assert_eq!(built[0].name, "linux");
    assert_eq!(
        exports(&built[0].path),
        ["linux_main", "linux_payload_bound", "linux_payload_init"]
    );
    open_now(&built[0].path);
}

#[test]
fn undeclared_imports_are_refused_with_their_referrers() {
    let workspace = Workspace::new(&["undeclared"]);
    workspace.package(
        "undeclared",
        DEPENDS,
        r#"#![no_std]
use ifunc::prelude::*;
unsafe extern "C" { fn getpid() -> i32; fn puts(text: *const u8) -> i32; }
#[inline(never)]
fn ask() -> i32 { unsafe { getpid() } }
#[ifunc]
pub fn undeclared_too(_by: u64, total: &mut u64) { *total = ask() as u64; }
#[ifunc]
pub fn undeclared(_by: u64, total: &mut u64) { unsafe { puts(c"x".as_ptr().cast()); } *total = ask() as u64; }
"#,
    );
    let refusal = workspace.refusal();
    println!("{refusal}");
    for text in [
        "cannot link the image of `undeclared`: 2 reasons",
        "cannot link the image of `undeclared_too`: 1 reason",
        "undefined symbol that no import declares: `getpid`",
        "undefined symbol that no import declares: `puts`",
        "compilers write `puts` for `printf`",
        "help: declare it: `#[ifunc::import] unsafe extern \"C\"",
    ] {
        assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
    }
    assert!(refusal.contains("referenced by `undeclared::ask`") || refusal.contains("`undeclared_main`"));
}

#[test]
fn one_name_is_one_ifunc() {
    let workspace = Workspace::new(&["twin-a", "twin-b"]);
    let source = ADD.replace("fn add", "fn twin");
    workspace.library("twin");
    workspace.package("twin-a", DEPENDS, &source);
    workspace.package("twin-b", DEPENDS, &source);
    let refusal = workspace.refusal();
    let expected = "two ifuncs are named `twin`: one in package `twin-a`, one in package `twin-b`";
    assert!(
        refusal.contains(expected) && refusal.contains("#[ifunc(name = \"twin_2\")]"),
        "{refusal}"
    );

    // The same when the other one was built before.
    let refusal = workspace.build_only(&["twin-b"]).unwrap_err().to_string();
    assert!(refusal.contains("one in package `twin-a`"), "{refusal}");

    // An ifunc that moved does not count twice.
    workspace.package("twin-a", DEPENDS, "#![no_std]\npub use ifunc as _;\n");
    assert_eq!(workspace.build().unwrap().len(), 1);

    let c = workspace.package("twin-b", DEPENDS, &source).join("c");
    fs::create_dir(&c).unwrap();
    fs::write(c.join("t.c"), C_IFUNC.replace("NAME", "twin")).unwrap();
    let refusal = workspace.refusal();
    assert!(
        refusal.contains("t.c`") && refusal.contains("give the functions `twin_*` another prefix"),
        "{refusal}"
    );
}

#[test]
fn a_c_file_does_not_take_the_name_of_a_package() {
    let workspace = Workspace::alone(&["owner"]);
    let folder = workspace.package("owner", DEPENDS, &ADD.replace("fn add", "fn owned"));
    let owned = workspace.build().unwrap();
    let file = workspace.dir.path().join("c_owned.c");
    let text = C_IFUNC.replace("NAME", "owned") + "int helper(int x) { return x; }";
    fs::write(&file, text).unwrap();
    let build = || {
        let options = COptions {
            target_dir: workspace.options().target_dir,
            ..COptions::default()
        };
        build_c(std::slice::from_ref(&file), &options, &mut Quiet)
    };
    let refusal = build().unwrap_err().to_string();
    for text in [
        "two ifuncs are named `owned`: one in package `owner`",
        "c_owned.c`, give the functions `owned_*` another prefix",
        "release/owned.so` is out of date: `cargo ifunc build -p owner`",
    ] {
        assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
    }
    assert_eq!(read_library(&owned[0].path).unwrap().images[0].id(), owned[0].id);

    // The command of the message, once the package no longer has the ifunc.
    fs::write(folder.join("src/lib.rs"), ADD.replace("fn add", "fn renamed")).unwrap();
    workspace.build_only(&["owner"]).unwrap();
    assert_eq!(build().unwrap()[0].name, "owned");
}

#[test]
fn features_go_to_the_packages_that_have_them() {
    let workspace = Workspace::new(&["featured", "featureless"]);
    let source = "#![no_std]
use ifunc::prelude::*;
#[ifunc]
pub fn featured(by: u64, total: &mut u64) -> u64 { *total + by + cfg!(feature = \"a\") as u64 + 2 * cfg!(feature = \"b\") as u64 }
";
    let features = format!("{DEPENDS}\n[features]\na = []\nb = []\n");
    workspace.package("featured", &features, source);
    workspace.package("featureless", DEPENDS, &ADD.replace("fn add", "fn featureless"));
    let build = |asked: &[&str]| {
        let options = BuildOptions {
            features: asked.iter().map(|&f| f.into()).collect(),
            ..workspace.options()
        };
        build_packages(&options, &mut Quiet)
    };
    let image = |asked: &[&str]| build(asked).unwrap()[0].id;
    assert_ne!(image(&["a"]), image(&[]));
    assert_eq!(image(&["a,b"]), image(&["a b"]));
    assert_ne!(image(&["a,b"]), image(&["a"]));
    let refusal = build(&["a,c"]).unwrap_err().to_string();
    assert!(
        refusal.contains("no package that is built has the feature `c`")
            && refusal.contains("package `featured` has `a`, `b`; package `featureless` has none"),
        "{refusal}"
    );
}

const C_IFUNC: &str = r#"
#include <stddef.h>
#include <string.h>
size_t NAME_payload_bound(const void *a, size_t n) { return n; }
int NAME_payload_init(const void *a, size_t n, void *p, size_t *size) { memcpy(p, a, n); *size = n; return 0; }
int helper(int x);
void NAME_main(void *payload, size_t n, void *target) { *(int *)target += helper((int)n); }
"#;

#[test]
fn c_files_stand_beside_rust() {
    let workspace = Workspace::new(&["mixed"]);
    let folder = workspace.package("mixed", DEPENDS, &ADD.replace("fn add", "fn mixed_rust"));
    fs::create_dir(folder.join("c")).unwrap();
    fs::write(folder.join("c/mixed_c.c"), C_IFUNC.replace("NAME", "mixed_c")).unwrap();
    fs::write(folder.join("c/helper.c"), "int helper(int x) { return x * 2; }").unwrap();
    fs::write(folder.join("c/notes.txt"), "not C").unwrap();
    let built = workspace.build().unwrap();
    let names: Vec<_> = built.iter().map(|b| (&*b.name, b.language)).collect();
    assert_eq!(names, [("mixed_rust", Language::Rust), ("mixed_c", Language::C)]);
    assert_eq!(built[1].package.as_deref(), Some("mixed"));
    let image = Image::parse(&built[1].image).unwrap();
    let flags = image.entries().next().unwrap().flags;
    assert!(flags.contains(EntryFlags::IGNORE_RESULT) && image.imports().len() == 0);
    let loaded = Loaded::new(&built[1].image, |_| None).unwrap();
    let mut total = 1_i32;
    // SAFETY: the target is an `int`.
    unsafe { loaded.run(&mut [0; 4], &mut total) };
    assert_eq!(total, 9);
}

#[test]
fn packages_without_ifuncs_are_passed_over_unless_named() {
    let workspace = Workspace::new(&["types-only", "unrelated"]);
    workspace.package("types-only", DEPENDS, "#![no_std]\npub use ifunc as _;\n");
    workspace.package("unrelated", "", "pub fn uses_std() -> String { String::new() }\n");
    assert!(workspace.build().unwrap().is_empty());
    let refusal = workspace.build_only(&["types-only"]).unwrap_err();
    assert!(matches!(refusal, BuildError::NoIfuncs { .. }), "{refusal:?}");
    let refusal = refusal.to_string();
    assert!(
        refusal.contains("package `types-only` has no ifunc\nhelp: "),
        "{refusal}"
    );
    let refusal = workspace.build_only(&["unrelated"]).unwrap_err().to_string();
    assert!(
        refusal.contains("the ifunc packages are: `types-only`"),
        "{refusal}"
    );
}

#[test]
fn errors_of_the_compiler_are_translated() {
    let refused = |name: &str, source: &str, texts: &[&str]| {
        let workspace = Workspace::new(&[name]);
        workspace.package(name, DEPENDS, source);
        let refusal = workspace.build().unwrap_err();
        assert!(matches!(refusal, BuildError::Compile { .. }), "{refusal:?}");
        let refusal = refusal.to_string();
        for text in texts {
            assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
        }
    };
    let body = ADD.replace("#![no_std]", "").replace("fn add", "fn broken");
    refused(
        "with-std",
        &body,
        &[
            "could not compile ifunc package `with-std`",
            "help: write `#![no_std]`",
        ],
    );
    refused(
        "own-handler",
        &format!(
            "#![no_std]\n{body}#[panic_handler]\nfn mine(_: &core::panic::PanicInfo) -> ! {{ loop {{}} }}\n"
        ),
        &["`#[panic_handler]` of its own"],
    );
    refused(
        "needs-alloc",
        &format!("#![no_std]\nextern crate alloc;\n{body}").replace(
            "*counter += delta;",
            "*counter += alloc::vec![delta; delta as usize].len() as u64;",
        ),
        &["features = [\"alloc\"]"],
    );
    refused(
        "two-modules",
        &format!("#![no_std]\npub mod a {{ {body} }}\npub mod b {{ {body} }}\n"),
        &["two ifuncs of `two-modules` are named `broken`"],
    );
    refused(
        "plain-error",
        &format!("#![no_std]\n{body} fn f() {{ nothing() }}"),
        &["could not compile"],
    );
}

/// A package of this name whose image may panic.
struct Panicky {
    workspace: Workspace,
    name: &'static str,
}

impl Panicky {
    fn new(name: &'static str) -> Self {
        let workspace = Workspace::new(&[name]);
        Self { workspace, name }
    }

    /// Chooses what a panic tells.
    fn policy(&self, policy: &str) -> &Workspace {
        let source = "#![no_std]
use ifunc::prelude::*;
#[ifunc]
pub fn NAME(index: u64, table: &mut [u64; 4]) -> u64 { table[index as usize] }
";
        let manifest = format!("{DEPENDS}\n[package.metadata.ifunc]\npanic = \"{policy}\"\n");
        self.workspace
            .package(self.name, &manifest, &source.replace("NAME", self.name));
        &self.workspace
    }

    /// The sizes of the image with these policies.
    fn sizes<const N: usize>(&self, policies: [&str; N]) -> [usize; N] {
        let sizes = policies.map(|policy| self.policy(policy).build().unwrap()[0].image.len());
        println!("{policies:?}: {sizes:?}");
        sizes
    }
}

#[test]
fn the_manifest_chooses_what_a_panic_tells() {
    let panicky = Panicky::new("panicky");
    let [message, minimal] = panicky.sizes(["message", "minimal"]);
    assert!(minimal < message);
    let refusal = panicky.policy("loud").refusal();
    assert!(refusal.contains("`panic = \"loud\"` is not one of"), "{refusal}");
}

#[test]
#[ignore = "nightly: each policy compiles the SDK once more"]
fn each_policy_tells_less_than_the_one_before() {
    let [message, location, minimal] = Panicky::new("calm").sizes(["message", "location", "minimal"]);
    assert!(minimal < location && location < message);
}

#[test]
#[ignore = "nightly: compiles the SDK twice more"]
fn images_do_not_depend_on_where_they_are_built() {
    let source = "#![no_std]
use ifunc::prelude::*;
#[ifunc]
pub fn placed(index: u64, table: &mut [u64; 4]) -> u64 { table[index as usize] }
";
    let here = Workspace::new(&["placed"]);
    here.package("placed", DEPENDS, source);
    let there = Workspace::alone(&["placed", "neighbour"]);
    there.package("placed", DEPENDS, source);
    there.package("neighbour", DEPENDS, "#![no_std]\npub use ifunc as _;\n");
    let (here, there) = (here.build().unwrap(), there.build().unwrap());
    assert_eq!(here[0].image, there[0].image);
    let text = String::from_utf8_lossy(&here[0].image).into_owned();
    assert!(
        !text.contains(env!("CARGO_MANIFEST_DIR")) && !text.contains(".cargo"),
        "{text}"
    );
}

#[test]
#[ignore = "nightly: another profile compiles the SDK once more"]
fn another_profile_is_another_folder() {
    let workspace = Workspace::new(&["profiled"]);
    workspace.package("profiled", DEPENDS, &ADD.replace("fn add", "fn profiled"));
    let options = BuildOptions {
        profile: "dev".into(),
        ..workspace.options()
    };
    let built = build_packages(&options, &mut Quiet).unwrap();
    assert!(
        built[0].path.ends_with("debug/profiled.so"),
        "{:?}",
        built[0].path
    );
    let mut counter = 1_u64;
    let loaded = Loaded::new(&built[0].image, |_| Some(1)).unwrap();
    // SAFETY: the payload is a `u64`, the target too.
    unsafe { loaded.run(&mut 5_u64.to_le_bytes(), &mut counter) };
    assert_eq!(counter, 6);
}
