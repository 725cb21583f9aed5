//! The CPU level of an image follows the request, and nothing in the environment changes it silently.

use std::path::Path;
use std::process::Command;

use crate::common::{IMAGES, Ran, c_ifunc, command, ifunc, ifunc_manifest, lock_target, ran, write};
use serde_json::Value;

/// Counts bits: one instruction from v2 on, about twelve before.
const ONES: &str = "#![no_std]\nuse ifunc::prelude::*;\n\n#[ifunc]\npub fn ones(x: u64, _: &mut u64) -> u64 { x.count_ones().into() }\n";
/// The same in C.
const C_ONES: &str = "#include <stddef.h>\n#include <stdint.h>\n\
    size_t c_ones_payload_bound(void *args, size_t n) { (void)args; return n; }\n\
    int c_ones_payload_init(void *args, size_t n, void *payload, size_t *size) { (void)args; (void)payload; *size = n; return 0; }\n\
    void c_ones_main(void *payload, size_t n, void *target)\n\
    { if (n == 8) *(uint64_t *)target = (uint64_t)__builtin_popcountll(*(uint64_t *)payload); }\n";

/// A package with one ifunc in Rust and one in C.
struct Package {
    folder: tempfile::TempDir,
}

/// The id, the stated CPU levels and the code of an image.
#[derive(Debug, PartialEq)]
struct Built {
    id: String,
    levels: Vec<String>,
    /// Whether the code contains the instruction `popcnt`.
    counts: bool,
}

impl Package {
    fn new(metadata: &str) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let manifest = format!(
            "{}\n[package.metadata.ifunc]\n{metadata}\n",
            ifunc_manifest("counter")
        );
        write(
            folder.path(),
            &[
                ("Cargo.toml", &manifest),
                ("src/lib.rs", ONES),
                ("c/c_ones.c", C_ONES),
            ],
        );
        Self { folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.folder.path(), &["build", "--target-dir", IMAGES]);
        command.args(args);
        command
    }

    /// Builds both ifuncs; the one in Rust comes first.
    fn built(&self, command: &mut Command) -> [Built; 2] {
        let _lock = lock_target();
        ran(command).succeeded();
        ["ones", "c_ones"].map(|name| inspected(&Path::new(IMAGES).join(format!("release/{name}.so"))))
    }
}

fn inspected(library: &Path) -> Built {
    let folder = library.parent().expect("a folder");
    let out = ifunc(folder, &["inspect", "--json", library.to_str().expect("UTF-8")])
        .succeeded()
        .out;
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let levels = report["cpu_features"].as_array().expect("a list");
    let image = ifunc_build::read_library(library)
        .expect("library")
        .images
        .remove(0)
        .image;
    Built {
        id: report["id"].as_str().expect("an id").to_owned(),
        levels: levels
            .iter()
            .map(|level| level.as_str().expect("a name").to_owned())
            .collect(),
        counts: image.windows(4).any(|bytes| bytes == [0xf3, 0x48, 0x0f, 0xb8]),
    }
}

#[test]
fn the_requested_level_is_built_and_stated() {
    let package = Package::new("");
    let of = |args: &[&str]| package.built(&mut package.command(args));
    for built in of(&[]) {
        assert!(built.levels.is_empty() && !built.counts, "{built:?}");
    }
    for built in of(&["--cpu", "x86-64-v2"]) {
        assert!(built.levels == ["x86-64-v2"] && built.counts, "{built:?}");
    }
    ran(&mut package.command(&["--cpu", "x86-64-v5"])).failed(2, &["x86-64-v5", "x86-64-v4"]);
}

#[test]
#[ignore = "nightly: every level compiles the SDK once more"]
fn a_package_may_ask_for_more() {
    let package = Package::new("cpu = \"x86-64-v2\"");
    let of = |args: &[&str]| {
        package
            .built(&mut package.command(args))
            .map(|built| built.levels)
    };
    assert_eq!(of(&["--cpu", "x86-64-v1"]), [["x86-64-v2"]; 2]);
    let v3 = ["x86-64-v2", "x86-64-v3"];
    assert_eq!(of(&["--cpu", "x86-64-v3"]), [v3; 2]);
    let wrong = Package::new("cpu = \"native\"");
    ran(&mut wrong.command(&[])).failed(
        1,
        &[
            "`cpu = \"native\"` is no CPU",
            "help: `--cpu` and `[package.metadata.ifunc] cpu` know, of x86-64, x86-64-v1, x86-64-v2",
        ],
    );
}

#[test]
#[ignore = "nightly: every setting compiles the SDK once more"]
fn the_environment_does_not_leak_in() {
    let package = Package::new("");
    let plain = package.built(&mut package.command(&[]));
    let native = "-Ctarget-cpu=native";
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    ] {
        let built = package.built(package.command(&[]).env(variable, native));
        assert_eq!(built, plain, "{variable}");
    }
    for table in ["build", "target.x86_64-unknown-linux-gnu", "target.'cfg(unix)'"] {
        let config = format!("[{table}]\nrustflags = [\"{native}\"]\n");
        write(package.folder.path(), &[(".cargo/config.toml", &config)]);
        let mut command = package.command(&[]);
        // Sets the C flags as well.
        for variable in ["CFLAGS", "CPPFLAGS", "TARGET_CFLAGS"] {
            command.env(variable, "-O3 -march=native");
        }
        assert_eq!(package.built(&mut command), plain, "{table}");
    }
}

fn c_file(cc: &str, args: &[&str]) -> (tempfile::TempDir, Ran) {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("c_ones.c", C_ONES), ("foo.c", &c_ifunc("foo"))]);
    let args = [&["build", "c_ones.c"], args].concat();
    let ran = ran(command(folder.path(), &args).env("CC", cc));
    (folder, ran)
}

#[test]
fn the_march_of_the_user_wins_and_is_stated() {
    let levels = |cc: &str, args: &[&str]| {
        let (folder, ran) = c_file(cc, args);
        ran.succeeded();
        let built = inspected(&folder.path().join("target/ifunc/release/c_ones.so"));
        assert_eq!(built.counts, !built.levels.is_empty(), "{built:?}");
        built.levels.len()
    };
    assert_eq!(levels("cc -march=x86-64-v3", &[]), 2);
    assert_eq!(levels("cc -march=x86-64-v2", &["--cpu", "x86-64-v4"]), 1);
    assert_eq!(
        levels("cc", &["--cpu", "x86-64-v3", "--cflag=-march=x86-64-v2"]),
        1
    );
    assert_eq!(levels("cc -march=x86-64-v3", &["--cflags=-g0 -march=x86-64"]), 0);

    // `-march=native` maps to a level or is refused, never ignored.
    let (folder, ran) = c_file("cc -march=native", &[]);
    if ran.code == Some(0) {
        let built = inspected(&folder.path().join("target/ifunc/release/c_ones.so"));
        assert_eq!(built.counts, !built.levels.is_empty(), "{built:?}");
    } else {
        ran.failed(
            1,
            &[
                "`-march=native` enables CPU features of no x86-64 level",
                "help: ",
            ],
        );
    }
}

#[test]
fn flags_with_blanks_and_without() {
    let folder = tempfile::tempdir().expect("folder");
    let source = format!(
        "#include TEXT_HEADER\n_Static_assert(sizeof WORDS == 10 && N == 3, \"\");\n{}",
        c_ifunc("foo")
    );
    write(
        folder.path(),
        &[
            ("foo.c", &source),
            ("a folder/text.h", "#define WORDS \"two words\"\n"),
        ],
    );
    ifunc(
        folder.path(),
        &[
            "build",
            "foo.c",
            "--cflags=-DN=3  -Wall",
            "--cflags",
            "-Wextra",
            "--cflag=-Ia folder",
            "--cflag=-DTEXT_HEADER=\"text.h\"",
        ],
    )
    .succeeded();
    ifunc(folder.path(), &["build", "foo.c", "--cflags=-Ia folder"])
        .failed(1, &["could not compile `foo.c` with `"]);
}

#[test]
fn needed_libraries_are_stated() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    let build = |soname: &str| ifunc(folder.path(), &["build", "foo.c", "--needed", soname]);
    build("libz.so.1").succeeded();
    let out = ifunc(
        folder.path(),
        &["inspect", "--json", "target/ifunc/release/foo.so"],
    )
    .succeeded()
    .out;
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["needed"][0], "libz.so.1");
    build("/lib/libz.so.1").failed(
        1,
        &[
            "`/lib/libz.so.1` cannot name a shared library",
            "it is a path",
            "help: ",
        ],
    );
}
