//! Rust packages: from a crate that depends on `ifunc` to images and libraries.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Loaded;
use ifunc_abi::image::{Flags, Image};
use ifunc_build::{BuildError, BuildOptions, BuiltIfunc, Quiet, build_packages, read_library};

/// A workspace in a temporary directory.
struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    fn new(members: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let members = members
            .iter()
            .map(|m| format!("{m:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        fs::write(
            dir.path().join("Cargo.toml"),
            format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n"),
        )
        .unwrap();
        // The versions of the checkout: what it builds with is there.
        let lock = sdk().with_file_name("Cargo.lock");
        if lock.exists() {
            fs::copy(lock, dir.path().join("Cargo.lock")).unwrap();
        }
        Self { dir }
    }

    fn package(&self, name: &str, manifest: &str, source: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(folder.join("src")).unwrap();
        let ifunc = sdk();
        let manifest = manifest.replace("IFUNC", &format!("path = {:?}", ifunc.to_str().unwrap()));
        fs::write(
            folder.join("Cargo.toml"),
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{manifest}\n"),
        )
        .unwrap();
        fs::write(folder.join("src/lib.rs"), source).unwrap();
        folder
    }

    fn options(&self) -> BuildOptions {
        BuildOptions {
            current_dir: Some(self.dir.path().into()),
            manifest_path: Some(self.dir.path().join("Cargo.toml")),
            // One for all tests: what `ifunc` depends on is compiled once. Every test has its own names.
            target_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ifunc")),
            offline: true,
            ..BuildOptions::default()
        }
    }

    /// Where a library lands; what an earlier run left is removed.
    fn library(&self, name: &str) -> PathBuf {
        let path = self
            .options()
            .target_dir
            .unwrap()
            .join(format!("release/{name}.so"));
        let _ = fs::remove_file(&path);
        path
    }

    fn build(&self) -> Result<Vec<BuiltIfunc>, BuildError> {
        build_packages(&self.options(), &mut Quiet)
    }
}

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("ifunc")
}

const DEPENDS: &str = "[dependencies]\nifunc = { IFUNC }";
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
    assert_eq!(add.name, "add");
    assert!(!add.fresh);
    assert_eq!(add.path, path);
    println!("the image of `add` has {} bytes", add.image.len());
    assert!(
        add.image.len() <= 256,
        "the image of `add` has {} bytes",
        add.image.len()
    );
    let image = Image::parse(&add.image).unwrap();
    assert_eq!(
        (
            image.imports().len(),
            image.relocation_count(),
            image.payload_align()
        ),
        (0, 0, 8)
    );
    assert!(!image.flags().has(Flags::IGNORE_RESULT));
    assert!(image.payload() != 0 && image.target() != 0 && image.answer() != 0);

    let loaded = Loaded::new(&add.image, |_| None).unwrap();
    let mut counter = 37_u64;
    // SAFETY: the payload is a `u64`, the target too.
    assert_eq!(unsafe { loaded.run(&mut 5_u64.to_le_bytes(), &mut counter) }, 0);
    assert_eq!(counter, 42);

    let library = read_library(&add.path).unwrap();
    assert_eq!(library.images[0].image, add.image);
    assert_eq!(library.images[0].id(), add.id);
    let about = library.images[0].about();
    assert_eq!(
        (about.payload(), about.target(), about.convention()),
        (Some("u64"), Some("u64"), Some("bound"))
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
}
