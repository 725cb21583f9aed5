//! Libraries with several slices, from the command line to what `inspect` lists and `sign` signs.

use std::path::Path;

use crate::common::{Ran, c_ifunc, command, ifunc, ifunc_manifest, lock_target, ran, write};
use serde_json::Value;

/// Builds `foo.c` with these arguments, in a folder that goes with the result.
fn built(args: &[&str]) -> (tempfile::TempDir, Ran) {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    let args = [&["build", "foo.c"], args].concat();
    let ran = ifunc(folder.path(), &args);
    (folder, ran)
}

/// What `inspect --json` says of a library: an object for each slice.
fn slices(folder: &Path, library: &str) -> Vec<Value> {
    let out = ifunc(folder, &["inspect", "--json", library]).succeeded().out;
    match serde_json::from_str(&out).expect("JSON") {
        Value::Array(several) => several,
        one => vec![one],
    }
}

fn machines(slices: &[Value]) -> Vec<&str> {
    let of = |slice: &Value| {
        slice["slice"]["machine"]
            .as_str()
            .map(str::len)
            .unwrap_or_default()
    };
    assert!(slices.len() == 1 || slices.iter().all(|slice| of(slice) > 0));
    slices
        .iter()
        .map(|slice| slice["slice"]["machine"].as_str().unwrap_or_default())
        .collect()
}

const LIBRARY: &str = "target/ifunc/release/foo.so";

#[test]
fn each_level_is_a_slice() {
    for args in [
        &["--cpu", "x86-64-v3,x86-64-v1"][..],
        &["--cpu", "x86-64-v1", "--cpu", "x86-64-v3", "--cpu", "x86-64"],
    ] {
        let (folder, ran) = built(args);
        let said = ran.succeeded().err;
        assert!(
            said.contains("bytes of image, ") && said.contains(" for x86-64-v3, "),
            "{said}"
        );
        let slices = slices(folder.path(), LIBRARY);
        assert_eq!(machines(&slices), ["x86-64-v1", "x86-64-v3"]);
        let text = ifunc(folder.path(), &["inspect", LIBRARY]).succeeded().out;
        let table: Vec<&str> = text.lines().take(3).collect();
        assert_eq!(table[0], "foo: 2 slices");
        for (line, slice) in table[1..].iter().zip(&slices) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let expected = [
                slice["slice"]["machine"].as_str().unwrap(),
                &slice["image_bytes"].to_string(),
                "bytes",
                slice["id"].as_str().unwrap(),
            ];
            assert_eq!(words, expected);
        }
    }
    let (folder, ran) = built(&["--cpu", "x86-64-v2"]);
    ran.succeeded();
    let one = slices(folder.path(), LIBRARY);
    assert!(one.len() == 1 && one[0]["slice"].is_null());
    assert_eq!(one[0]["cpu_features"][0], "x86-64-v2");
}

#[test]
fn each_slice_is_signed() {
    let (folder, ran) = built(&["--cpu", "x86-64-v1,x86-64-v2"]);
    ran.succeeded();
    let run = |args: &[&str]| ifunc(folder.path(), args).succeeded();
    run(&["keygen", "key"]);
    run(&["sign", "--key", "key.key", LIBRARY]);
    let signatures = std::fs::read_to_string(folder.path().join("target/ifunc/release/foo.sig")).unwrap();
    for slice in slices(folder.path(), LIBRARY) {
        assert!(signatures.contains(slice["id"].as_str().unwrap()), "{signatures}");
    }
    let verified = run(&["verify", LIBRARY]).err;
    assert_eq!(verified.matches("Verified").count(), 2, "{verified}");
}

#[test]
fn a_cpu_of_no_target_is_refused() {
    let (_folder, ran) = built(&["--target", "aarch64-unknown-linux-gnu", "--cpu", "x86-64-v3"]);
    ran.failed(
        2,
        &["`--cpu x86-64-v3` is a CPU of another architecture than `aarch64-unknown-linux-gnu`"],
    );
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("foo.c", &c_ifunc("foo"))]);
    ifunc(folder.path(), &["check", "foo.c", "--cpu", "x86-64-v1,x86-64-v3"])
        .failed(2, &["invalid value 'x86-64-v1,x86-64-v3' for '--cpu <CPU>'"]);
}

/// Counts bits: one instruction from v2 on, about twelve before.
const ONES: &str = "#![no_std]\nuse ifunc::prelude::*;\n\n#[ifunc]\npub fn ones(x: u64, _: &mut u64) -> u64 { x.count_ones().into() }\n";

#[test]
#[ignore = "nightly: every slice compiles the SDK once more"]
fn a_manifest_lists_the_slices_of_its_package() {
    let folder = tempfile::tempdir().expect("folder");
    let manifest = format!(
        "{}\n[package.metadata.ifunc]\ncpu = [\"x86-64-v2\", \"x86-64-v1\", \"armv8-a\"]\n",
        ifunc_manifest("counter")
    );
    write(
        folder.path(),
        &[
            ("Cargo.toml", &manifest),
            ("src/lib.rs", ONES),
            ("c/foo.c", &c_ifunc("foo")),
        ],
    );
    let _lock = lock_target();
    let build = |args: &[&str]| {
        let args = [&["build", "--target-dir", crate::common::IMAGES], args].concat();
        ran(&mut command(folder.path(), &args)).succeeded();
        ["ones", "foo"].map(|name| {
            let library = Path::new(crate::common::IMAGES).join(format!("release/{name}.so"));
            slices(folder.path(), library.to_str().expect("UTF-8"))
        })
    };
    for slices in build(&[]) {
        assert_eq!(machines(&slices), ["x86-64-v1", "x86-64-v2"]);
    }
    for slices in build(&["--cpu", "x86-64-v2,x86-64-v3"]) {
        assert_eq!(machines(&slices), ["x86-64-v2", "x86-64-v3"]);
    }
}
