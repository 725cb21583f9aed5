//! Ifuncs that refer to each other, in C and Rust: one image with an entry each.

use crate::common::files::Files;
use crate::common::workspace::{DEPENDS, Workspace};
use ifunc_abi::image::{EntryFlags, Image};
use ifunc_build::{BuiltIfunc, read_library};

fn entries(built: &BuiltIfunc) -> Vec<&str> {
    let image = Image::parse(&built.image).unwrap();
    image.entries().map(|entry| entry.name).collect()
}

fn of<'b>(built: &'b [BuiltIfunc], name: &str) -> &'b BuiltIfunc {
    built.iter().find(|ifunc| ifunc.name == name).unwrap()
}

const WALK: &str = "#include <ifunc.h>
IFUNC_DECLARE_WITH_CONTEXT(visit);
IFUNC_PAYLOAD_BOUND(walk);
size_t walk_payload_bound(void *args, size_t n) { return n; }
int walk_payload_init(void *args, size_t n, void *payload, size_t *size) { *size = n; return 0; }
IFUNC_MAIN_WITH_CONTEXT(walk);
uint32_t walk_main(void *payload, size_t n, void *target, struct ifunc_context *ctx)
{
    return n ? ifunc_forward(ctx, 1, visit, payload, n - 1) : IFUNC_OK;
}
";

const VISIT: &str = "#include <ifunc.h>
IFUNC_DECLARE_WITH_CONTEXT(walk);
IFUNC_MAIN(leaf);
IFUNC_PAYLOAD_MAX_SIZE(visit);
size_t visit_payload_get_max_size(void *args, size_t n) { return n; }
int visit_payload_init(void *payload, size_t size, void *args, size_t n) { return 0; }
IFUNC_SHAREABLE(visit);
IFUNC_MAIN_WITH_CONTEXT(visit);
uint32_t visit_main(void *payload, size_t n, void *target, struct ifunc_context *ctx)
{
    ifunc_send(ctx, 1, leaf, payload, n);
    return ifunc_forward(ctx, 2, walk, payload, n);
}
IFUNC_PAYLOAD_BOUND(leaf);
size_t leaf_payload_bound(void *args, size_t n) { return 0; }
int leaf_payload_init(void *args, size_t n, void *payload, size_t *size) { return 0; }
void leaf_main(void *payload, size_t n, void *target) { ++*(long *)target; }
";

#[test]
fn c_files_name_each_others_mains() {
    let files = Files::new(&[("walk.c", WALK), ("visit.c", VISIT)]);
    let built = files.build(&["walk.c", "visit.c"]);
    let (walk, visit) = (of(&built, "walk"), of(&built, "visit"));
    assert_eq!(entries(walk), ["leaf", "visit", "walk"]);
    assert!(walk.image == visit.image && walk.id == visit.id, "one image");
    assert_eq!(entries(of(&built, "leaf")), ["leaf"]);
    let image = Image::parse(&walk.image).unwrap();
    let flags: Vec<_> = image.entries().map(|entry| entry.flags).collect();
    assert_eq!(
        flags,
        [EntryFlags::IGNORE_RESULT, EntryFlags::SHARED, EntryFlags::NONE]
    );
    for (ifunc, convention) in [(walk, "bound"), (visit, "max-size")] {
        let library = read_library(&ifunc.path).unwrap();
        let [image] = &library.images[..] else {
            panic!("{library:?}")
        };
        assert_eq!((&image.name, &image.image), (&ifunc.name, &ifunc.image));
        assert_eq!(image.about().entry(&ifunc.name).convention(), Some(convention));
        assert_eq!(image.about().entry("leaf").convention(), Some("bound"));
    }
}

const INNER: &str = "#![no_std]
use ifunc::prelude::*;
#[ifunc(idempotent)]
pub fn inner_leaf(value: u32, total: &mut u64) -> u32 { *total += u64::from(value); value }
";

/// Two that name each other, two that do the same, and one that names an ifunc of another crate.
const OUTER: &str = "#![no_std]
use ifunc::prelude::*;
use ifunc::Ifunc;
fn address(entry: Option<*const ()>) -> u64 { entry.map_or(0, |main| main as u64) }
#[ifunc]
pub fn outer_ping(_: (), total: &mut u64) { *total = address(outer_pong::entry()); }
#[ifunc]
pub fn outer_pong(_: u64, total: &mut u64) -> u64 { *total = address(outer_ping::entry()); 7 }
#[ifunc]
pub fn outer_one(step: u64, total: &mut u64) -> u64 { *total += step; *total }
#[ifunc]
pub fn outer_two(step: u64, total: &mut u64) -> u64 { *total += step; *total }
#[ifunc]
pub fn outer_all(_: (), total: &mut u64) {
    *total = address(outer_one::entry()) ^ address(outer_two::entry()) ^ address(inner::inner_leaf::entry());
}
";

#[test]
#[ignore = "nightly: builds two packages"]
fn rust_ifuncs_name_each_other_within_and_across_crates() {
    let workspace = Workspace::new(&["inner", "outer"]);
    workspace.package("inner", DEPENDS, INNER);
    let manifest = format!("{DEPENDS}\ninner = {{ path = \"../inner\" }}");
    workspace.package("outer", &manifest, OUTER);
    let built = workspace.build().unwrap();
    let (ping, pong) = (of(&built, "outer_ping"), of(&built, "outer_pong"));
    assert_eq!(entries(ping), ["outer_ping", "outer_pong"]);
    assert!(ping.image == pong.image && ping.id == pong.id, "one image");
    for alone in ["outer_one", "outer_two", "inner_leaf"] {
        assert_eq!(entries(of(&built, alone)), [alone]);
    }
    let all = of(&built, "outer_all");
    assert_eq!(
        entries(all),
        ["inner_leaf", "outer_all", "outer_one", "outer_two"]
    );
    let image = Image::parse(&all.image).unwrap();
    let (_, leaf) = image.entry("inner_leaf").unwrap();
    let (_, alone) = Image::parse(&of(&built, "inner_leaf").image)
        .unwrap()
        .entry("inner_leaf")
        .unwrap();
    assert_eq!(leaf.flags, EntryFlags::IDEMPOTENT);
    assert_eq!(
        (leaf.payload, leaf.target, leaf.answer, leaf.payload_align),
        (alone.payload, alone.target, alone.answer, alone.payload_align)
    );
    let library = read_library(&all.path).unwrap();
    let about = library.images[0].about();
    assert_eq!(about.entry("inner_leaf").payload(), Some("u32"));
    assert_eq!(about.entry("outer_two").answer(), Some("u64"));
}
