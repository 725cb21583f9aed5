//! Optimisation, link-time optimisation and needed libraries of Rust packages: what is asked for is built.

mod common;

use common::workspace::{DEPENDS, Workspace};
use ifunc_abi::image::Image;
use ifunc_build::{BuildOptions, OptLevel, Quiet, build_packages};

/// One that calls itself out of line where nothing is optimised, and one that imports something.
const SOURCE: &str = "#![no_std]
use ifunc::prelude::*;
#[ifunc::import]
unsafe extern \"C\" { safe fn crc32(crc: u64, bytes: &[u8]) -> u64; }
fn step(x: u64) -> u64 { x.wrapping_mul(3).rotate_left(7) }
#[ifunc]
pub fn steps(n: u64, total: &mut u64) -> u64 { for _ in 0..n { *total = step(*total); } *total }
#[ifunc]
pub fn checked(n: u64, total: &mut u64) -> u64 { *total += crc32(0, &n.to_ne_bytes()); *total }
";

#[test]
fn optimisation_is_what_is_asked_for() {
    let workspace = Workspace::new(&["levels"]);
    let text = SOURCE
        .replace("steps", "leveled")
        .replace("checked", "checked_levels");
    let manifest = format!("[package.metadata.ifunc]\nneeded = [\"libz.so.1\"]\n{DEPENDS}");
    workspace.package("levels", &manifest, &text);
    let built = |opt_level, lto| {
        let options = BuildOptions {
            opt_level,
            lto,
            ..workspace.options()
        };
        let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        let [checked, leveled] = &built[..] else {
            panic!("{built:?}")
        };
        // Only what imports something needs the library that may have it.
        let needed = |image: &[u8]| {
            let image = Image::parse(image).unwrap();
            image.needed().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(needed(&checked.image), ["libz.so.1"]);
        assert_eq!(needed(&leveled.image), [""; 0]);
        leveled.image.clone()
    };
    let best = built(None, true);
    assert_eq!(built(Some(OptLevel::O3), true), best);
    let none = built(Some(OptLevel::O0), true);
    assert!(
        none.len() > best.len() + 100,
        "{} bytes without optimisation, {} with",
        none.len(),
        best.len()
    );
    // Without link-time optimisation another recipe makes an image of the same kind.
    let apart = built(None, false);
    assert!(Image::parse(&apart).is_ok() && apart.len() < none.len());
    assert_eq!(
        built(None, true),
        best,
        "one setting leaves nothing behind for another"
    );
}

#[test]
fn what_is_no_soname_is_refused() {
    let workspace = Workspace::new(&["misnamed"]);
    let manifest = format!("[package.metadata.ifunc]\nneeded = [\"z\"]\n{DEPENDS}");
    let text = SOURCE
        .replace("steps", "misnamed")
        .replace("checked", "misnamed_too");
    workspace.package("misnamed", &manifest, &text);
    let refusal = workspace.refusal();
    assert!(
        refusal.contains("`z` cannot name a shared library") && refusal.contains("help: "),
        "{refusal}"
    );
}
