//! `build` and `inspect`.

use std::path::Path;

use crate::common::{IMAGES, Ran, c_ifunc, command, ifunc, ifunc_manifest, lock_target, ran, write};
use serde_json::Value;

const ADD: &str = "#![no_std]\nuse ifunc::prelude::*;\n\n#[ifunc]\npub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter }\n";

fn build_rust(folder: &Path, args: &[&str]) -> Ran {
    let _lock = lock_target();
    ifunc(folder, &[&["build", "--target-dir", IMAGES], args].concat())
}

fn inspected(folder: &Path, file: &str) -> Value {
    let out = ifunc(folder, &["inspect", "--json", file]).succeeded().out;
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn builds_a_single_c_file() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    let ran = ifunc(folder.path(), &["build", "foo.c"]).succeeded();
    assert!(ran.err.contains("    Finished 1 ifunc in "), "{}", ran.err);
    assert_eq!(ran.out, "");

    let foo = inspected(folder.path(), "target/ifunc/release/foo.so");
    assert_eq!(foo["name"], "foo");
    assert_eq!(foo["arch"], "x86_64");
    assert_eq!(foo["id"].as_str().map(str::len), Some(64));
    assert_eq!(foo["entries"][0]["flags"][0], "ignore-result");
    assert_eq!(foo["entries"][0]["convention"], "bound");
    let bytes = |field: &str| foo[field].as_u64().unwrap_or_else(|| panic!("{field} in {foo}"));
    assert!((1..bytes("image_bytes")).contains(&bytes("code_bytes")));
    assert!(foo["relocations"].is_array());
    let imports = foo["imports"].as_array().expect("imports");
    assert!(
        imports.iter().any(|import| import["symbol"] == "announce"),
        "{imports:?}"
    );

    let table = ifunc(folder.path(), &["inspect", "target/ifunc/release/foo.so"])
        .succeeded()
        .out;
    assert!(table.starts_with("foo\n          id  "), "{table}");
    assert!(table.contains("     imports  announce"), "{table}");

    let code = ifunc(
        folder.path(),
        &["inspect", "--disasm", "target/ifunc/release/foo.so"],
    )
    .succeeded()
    .out;
    assert!(
        code.contains("announce@plt") && code.contains("; import announce"),
        "{code}"
    );
}

#[test]
fn a_build_names_the_imports_and_a_library_that_only_the_source_links() {
    let folder = tempfile::tempdir().expect("folder");
    let squeeze = c_ifunc("squeeze").replace("announce", "crc32");
    write(folder.path(), &[("squeeze.c", &squeeze)]);
    let ran = ifunc(folder.path(), &["build", "squeeze.c", "--link-arg=-l:libz.so.1"]).succeeded();
    for said in [
        "     Imports crc32 of the target",
        "warning: `--link-arg=-l:libz.so.1` links what the source calls, not what travels: `squeeze` imports crc32",
        "if `libz.so.1` defines them, add `--needed libz.so.1`",
    ] {
        assert!(ran.err.contains(said), "{said}\n{}", ran.err);
    }
    let ran = ifunc(
        folder.path(),
        &[
            "build",
            "squeeze.c",
            "--link-arg=-l:libz.so.1",
            "--needed",
            "libz.so.1",
        ],
    );
    let ran = ran.succeeded();
    assert!(!ran.err.contains("warning"), "{}", ran.err);
}

#[test]
fn quiet_and_json() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    let ran = ifunc(
        folder.path(),
        &["build", "-q", "--message-format", "json", "foo.c"],
    )
    .succeeded();
    assert_eq!(ran.err, "");
    let message: Value = serde_json::from_str(&ran.out).expect("one line of JSON");
    assert_eq!(message["reason"], "ifunc-built");
    assert_eq!(message["name"], "foo");
    assert_eq!(message["language"], "c");
    assert!(Path::new(message["path"].as_str().expect("path")).ends_with("target/ifunc/release/foo.so"));
}

/// A compiler wrapper that reports `version`, and fails to print its macros if `silent`.
fn wrapper(version: &str, silent: bool) -> String {
    let macros = if silent { "echo no macros >&2; exit 1" } else { ":" };
    format!("case \"$*\" in --version) echo {version}; exit;; *-dM*) {macros};; esac\nexec cc \"$@\"\n")
}

#[test]
fn a_compiler_change_rebuilds_the_library() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    let args = ["build", "--message-format", "json", "foo.c"];
    let built = |version: &str, silent: bool| {
        write(folder.path(), &[("cc.sh", &wrapper(version, silent))]);
        ran(command(folder.path(), &args).env("CC", "sh cc.sh"))
    };
    let fresh = |version: &str| {
        let message: Value = serde_json::from_str(&built(version, false).succeeded().out).expect("JSON");
        message["fresh"].as_bool().expect("a bool")
    };
    assert_eq!(
        ["one", "one", "two", "two"].map(fresh),
        [false, true, false, true]
    );
    built("two", true).failed(1, &["no macros", "could not compile `/dev/null`"]);
}

#[test]
fn a_rust_package() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[("Cargo.toml", &ifunc_manifest("adder")), ("src/lib.rs", ADD)],
    );
    let ran = build_rust(folder.path(), &[]).succeeded();
    assert!(ran.err.contains("     Linking add ("), "{}", ran.err);

    let add = inspected(folder.path(), &format!("{IMAGES}/release/add.so"));
    assert_eq!(add["name"], "add");
    assert_eq!(add["entries"][0]["payload"]["text"], "u64");
    assert_eq!(add["entries"][0]["target"]["text"], "u64");
    assert_eq!(add["entries"][0]["answer"]["text"], "u64");
    assert_eq!(
        add["entries"][0]["payload"]["fingerprint"].as_str().map(str::len),
        Some(16)
    );
    let bytes = add["image_bytes"].as_u64().expect("a number");
    assert!(bytes <= 460, "the image of `add` has {bytes} bytes");

    let library = format!("{IMAGES}/release/add.so");
    let size = ifunc(folder.path(), &["inspect", "--size", "--json", &library])
        .succeeded()
        .out;
    let size: Value = serde_json::from_str(&size).expect("JSON");
    let items = size["items"].as_array().expect("items");
    let sum: u64 = items.iter().filter_map(|item| item["bytes"].as_u64()).sum();
    assert_eq!(sum, bytes, "the sizes do not add up to the image");
    assert!(
        items
            .iter()
            .any(|item| item["name"] == "add_main" && item["kind"] == "function")
    );
    let table = ifunc(folder.path(), &["inspect", "--size", &library])
        .succeeded()
        .out;
    assert!(
        table.contains("by crate") && table.ends_with("100.0 %  sum\n"),
        "{table}"
    );
    let code = ifunc(folder.path(), &["inspect", "--disasm", &library])
        .succeeded()
        .out;
    assert!(
        code.starts_with("00000000 <add_main>:") && code.contains("ret"),
        "{code}"
    );
}

#[test]
#[ignore = "nightly: another profile compiles the SDK once more"]
fn the_development_profile_has_its_own_folder() {
    let folder = tempfile::tempdir().expect("folder");
    let source = ADD.replace("fn add", "fn add_in_development");
    write(
        folder.path(),
        &[
            ("Cargo.toml", &ifunc_manifest("developed")),
            ("src/lib.rs", &source),
        ],
    );
    build_rust(folder.path(), &["--profile", "dev"]).succeeded();
    assert!(Path::new(IMAGES).join("debug/add_in_development.so").is_file());
}

#[test]
fn a_bare_image() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    ifunc(folder.path(), &["build", "foo.c"]).succeeded();
    let library =
        ifunc_build::read_library(folder.path().join("target/ifunc/release/foo.so")).expect("library");
    std::fs::write(folder.path().join("foo.image"), &library.images[0].image).expect("file");
    let of_library = inspected(folder.path(), "target/ifunc/release/foo.so");
    let of_image = inspected(folder.path(), "foo.image");
    for field in [
        "name",
        "id",
        "image_bytes",
        "code_bytes",
        "imports",
        "relocations",
    ] {
        assert_eq!(of_library[field], of_image[field], "{field}");
    }
}

#[test]
fn one_name_in_two_packages_is_an_error() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"one\", \"two\"]\n",
            ),
            ("one/Cargo.toml", &ifunc_manifest("one")),
            ("one/src/lib.rs", ADD),
            ("two/Cargo.toml", &ifunc_manifest("two")),
            ("two/src/lib.rs", ADD),
        ],
    );
    build_rust(folder.path(), &[]).failed(1, &["two ifuncs are named `add`", "one", "two", "help: "]);
}

#[test]
fn compile_errors_are_shown() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", &ifunc_manifest("wrong")),
            (
                "src/lib.rs",
                "#![no_std]\nuse ifunc::prelude::*;\n#[ifunc]\npub fn wrong(x: u64, c: &mut u64) { *c = y; }\n",
            ),
            ("wrong.c", "void wrong_main(void) { return 1 }\n"),
        ],
    );
    build_rust(folder.path(), &["-q"]).failed(
        1,
        &[
            "cannot find value `y`",
            "error: could not compile ifunc package `wrong`",
        ],
    );
    ifunc(folder.path(), &["build", "-q", "wrong.c"]).failed(1, &["error: could not compile `wrong.c`"]);
}
