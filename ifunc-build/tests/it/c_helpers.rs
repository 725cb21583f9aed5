//! Functions in C, in the folder `c` of a package, that its ifuncs in Rust call.

use std::fs;

use crate::common::loaded::Loaded;
use crate::common::workspace::{DEPENDS, Workspace};
use ifunc_abi::image::{Image, ImportKind};
use ifunc_build::{CheckOptions, Quiet, check_packages};

use crate::common;

const RUST: &str = r#"#![no_std]
use ifunc::prelude::*;
unsafe extern "C" {
    fn helped_mix(from: *const u64, n: usize) -> u64;
}
#[ifunc::import]
unsafe extern "C" { safe fn helped_both() -> u64; }
#[ifunc]
pub fn helped(values: &[u64], total: &mut u64) {
    // SAFETY: it reads `n` numbers.
    *total = unsafe { helped_mix(values.as_ptr(), values.len()) };
}
#[ifunc]
pub fn helped_not(by: u64, total: &mut u64) {
    *total = by + helped_both();
}
"#;

/// It has data, calls another file and the target, and what a compiler calls on its own.
const MIX: &str = r#"
#include <ifunc.h>
#include <string.h>
IFUNC_IMPORT(uint64_t, helped_scale, uint64_t by);
IFUNC_IMPORT_DATA(uint64_t, helped_offset);
extern uint64_t helped_of_cxx(uint64_t);
static const uint64_t weights[4] = {1, 10, 100, 1000};
static uint64_t calls;
/* The target has one, too, and `helped_not` declares that it calls that. */
uint64_t helped_both(void) { return 1; }
uint64_t helped_mix(const uint64_t *from, size_t n)
{
    uint64_t copy[64], sum = helped_offset;
    memcpy(copy, from, n * sizeof *from);
    for (size_t i = 0; i < n; i++)
        sum += weights[i % 4] * copy[i];
    return helped_scale(helped_of_cxx(sum)) + ++calls;
}
"#;

const CXX: &str = "
#include <cstdint>
template <class T> static T twice(T x) { return 2 * x; }
extern \"C\" std::uint64_t helped_of_cxx(std::uint64_t x) { return twice(x); }
";

/// An ifunc of the same package, with a constructor that no image can run.
const BESIDE: &str = r#"
#include <ifunc.h>
static uint64_t set;
__attribute__((constructor)) static void at_start(void) { set = 1; }
uint64_t helped_beside(void) { return set; }
"#;

/// A package of this name: tests that run at the same time build in the same directory.
fn workspace(name: &str, rust: &str, cxx: &str) -> Workspace {
    let workspace = Workspace::new(&[name]);
    let folder = workspace.package(name, DEPENDS, rust);
    fs::create_dir(folder.join("c")).unwrap();
    for (name, text) in [("mix.c", MIX), ("twice.cc", cxx), ("beside.c", BESIDE)] {
        fs::write(folder.join("c").join(name), text).unwrap();
    }
    workspace
}

extern "C" fn scale(by: u64) -> u64 {
    by * 1_000_000
}

static OFFSET: u64 = 7;

#[test]
fn a_rust_ifunc_calls_c_and_cxx_of_its_package() {
    let workspace = workspace("helped", RUST, CXX);
    workspace.library("helped");
    let built = workspace.build().unwrap();
    let [helped, helped_not] = &built[..] else {
        panic!("{built:?}")
    };
    let image = Image::parse(&helped.image).unwrap();
    let imports: Vec<_> = image
        .imports()
        .map(|import| (import.symbol, import.kind()))
        .collect();
    assert!(
        imports.contains(&("helped_scale", ImportKind::Function)),
        "{imports:?}"
    );
    assert!(
        imports.contains(&("helped_offset", ImportKind::Variable)),
        "{imports:?}"
    );
    let loaded = Loaded::new(&helped.image, |symbol| match symbol {
        "helped_scale" => Some(scale as *const () as usize),
        "helped_offset" => Some((&raw const OFFSET) as usize),
        _ => None,
    })
    .unwrap();
    let payload = [2u64, 3, 5].map(u64::to_le_bytes).concat();
    for call in 1..3 {
        let mut total = 0u64;
        // SAFETY: the payload is numbers, the target one.
        assert_eq!(unsafe { loaded.run(&mut payload.clone(), &mut total) }, 0);
        assert_eq!(total, 2 * (2 + 30 + 500 + 7) * 1_000_000 + call);
    }
    // A declared import is one, whatever the files define.
    let image = Image::parse(&helped_not.image).unwrap();
    let imports: Vec<_> = image.imports().map(|import| import.symbol).collect();
    assert_eq!(imports, ["helped_both"]);
    // The library opens where the target's functions are not.
    common::open_now(&helped.path);
}

#[test]
#[ignore = "nightly: three builds of a package that do not succeed"]
fn a_function_that_is_nowhere_is_named() {
    let lost = RUST
        .replace("helped_mix(", "helped_of_cxx(")
        .replace("from: *const u64, n: usize", "n: u64");
    let lost = lost.replace("values.as_ptr(), values.len()", "values[0]");
    let workspace = workspace("helped_nowhere", &lost, &CXX.replace("extern \"C\" ", ""));
    let text = workspace.refusal();
    assert!(
        text.contains("undefined symbol that no import declares: `helped_of_cxx`")
            && text.contains(
                "twice.o defines `helped_of_cxx(unsigned long)`, whose symbol has the name that C++ gives it"
            )
            && text.contains("declare it `extern \"C\"` there"),
        "{text}"
    );
    workspace.package(
        "helped_nowhere",
        DEPENDS,
        &lost.replace("helped_of_cxx", "helped_nowhere"),
    );
    let text = workspace.refusal();
    assert!(
        text.contains("`helped_nowhere`")
            && text.contains("or define it in C, in a file of the package's folder `c`"),
        "{text}"
    );
    // A check finds the same.
    let options = CheckOptions {
        build: workspace.options(),
        link: true,
        ..CheckOptions::default()
    };
    let checked = check_packages(&options, &mut Quiet).unwrap();
    let errors: Vec<String> = checked.errors.iter().map(ToString::to_string).collect();
    assert!(
        errors.iter().any(|error| error.contains("`helped_nowhere`")),
        "{errors:?}"
    );
}
