//! The options of `build`: packages, features, profiles and examples; unchanged files stay untouched.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use crate::common::{IMAGES, Ran, checkout, ifunc, ifunc_manifest, write};
use serde_json::Value;

fn build(folder: &Path, args: &[&str]) -> Ran {
    ifunc(folder, &[&["build", "--target-dir", IMAGES], args].concat())
}

/// The ifuncs that a build reports, each with whether its library was up to date.
fn built(ran: &Ran) -> BTreeMap<String, bool> {
    let messages = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    messages
        .map(|message| {
            assert_eq!(message["reason"], "ifunc-built");
            assert_eq!(message["language"], "rust");
            assert!(Path::new(message["path"].as_str().expect("path")).is_file());
            let name = message["name"].as_str().expect("name").to_owned();
            (name, message["fresh"].as_bool().expect("fresh"))
        })
        .collect()
}

fn names(ran: &Ran) -> Vec<String> {
    built(ran).into_keys().collect()
}

const ONE: &str = "#![no_std]\nuse ifunc::prelude::*;\n\
    #[ifunc]\npub fn options_one(delta: u64, counter: &mut u64) { *counter += delta + 1001; }\n\
    #[cfg(feature = \"more\")]\n#[ifunc]\npub fn options_more(delta: u64, counter: &mut u64) { *counter += delta; }\n\
    #[cfg(feature = \"usual\")]\n#[ifunc]\npub fn options_usual(delta: u64, counter: &mut u64) { *counter -= delta; }\n";
const TWO: &str = "#![no_std]\nuse ifunc::prelude::*;\n\
    #[ifunc]\npub fn options_two(delta: u64, counter: &mut u64) { *counter = delta; }\n";
/// An example without `main` that uses the library.
const EXAMPLE: &str = "#![no_std]\nuse ifunc::prelude::*;\n\
    #[ifunc]\npub fn options_example(delta: u64, counter: &mut u64) { *counter = delta * options_a::FACTOR; }\n";

/// Two ifunc packages: the first with features and examples.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let rt = checkout().join("ifunc-rt");
    // A dev-dependency on the runtime does not make a package a host package, and images do not contain it.
    let one = ifunc_manifest("options-a")
        + &format!(
            "\n[target.'cfg(not(ifunc_image))'.dev-dependencies]\nifunc-rt = {{ path = {rt:?} }}\n\n\
             [features]\ndefault = [\"usual\"]\nusual = []\nmore = []\n\n\
             [[example]]\nname = \"as-library\"\ncrate-type = [\"lib\"]\n"
        );
    write(
        folder.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"a\", \"b\"]\n",
            ),
            ("a/Cargo.toml", &one),
            ("a/src/lib.rs", &format!("{ONE}pub const FACTOR: u64 = 3;\n")),
            (
                "a/examples/as-library.rs",
                &EXAMPLE.replace("options_example", "options_library"),
            ),
            ("a/examples/as-program.rs", EXAMPLE),
            ("b/Cargo.toml", &ifunc_manifest("options-b")),
            ("b/src/lib.rs", TWO),
        ],
    );
    std::fs::copy(checkout().join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("Cargo.lock");
    folder
}

/// The modification time of each library.
fn written(names: &[&str]) -> Vec<SystemTime> {
    let when = |name: &&str| {
        let path = Path::new(IMAGES).join("release").join(format!("{name}.so"));
        std::fs::metadata(&path).and_then(|metadata| metadata.modified())
    };
    names
        .iter()
        .map(|name| when(name).expect("it is there"))
        .collect()
}

#[test]
#[ignore = "nightly: every profile compiles the SDK once more"]
fn only_requested_libraries_are_written() {
    let folder = workspace();
    let here = folder.path();
    let json = |args: &[&str]| build(here, &[&["-q", "--message-format", "json"], args].concat()).succeeded();

    // The lock file is of another workspace: with `--locked` that is an error, and the build changes nothing.
    let locked = build(here, &["--locked"]);
    assert_eq!(locked.code, Some(1), "{}", locked.err);
    assert!(locked.err.contains("--locked"), "{}", locked.err);

    assert_eq!(
        names(&json(&["--offline"])),
        ["options_one", "options_two", "options_usual"]
    );
    assert_eq!(names(&json(&["--locked", "-p", "options-b"])), ["options_two"]);
    assert_eq!(
        names(&json(&["-p", "options-a", "--features", "more"])),
        ["options_more", "options_one", "options_usual"]
    );
    assert_eq!(
        names(&json(&["-p", "options-a", "--no-default-features"])),
        ["options_one"]
    );
    assert!(
        !Path::new(IMAGES).join("release/options_usual.so").exists(),
        "a removed ifunc still has a library"
    );
    build(here, &["--features", "absent"]).failed(1, &["no package that is built has the feature `absent`"]);

    // Without changes, the build writes nothing.
    json(&[]);
    let all = ["options_one", "options_two", "options_usual"];
    let before = written(&all);
    assert!(built(&json(&[])).into_values().all(|fresh| fresh));
    assert_eq!(written(&all), before);
    // A change in one ifunc rewrites one library.
    let text = format!("{ONE}pub const FACTOR: u64 = 3;\n").replace("delta + 1001", "delta + 1002");
    write(here, &[("a/src/lib.rs", &text)]);
    let fresh = built(&json(&[]));
    assert_eq!(
        [fresh["options_one"], fresh["options_two"], fresh["options_usual"]],
        [false, true, true]
    );
    assert_eq!(written(&all)[1..], before[1..]);

    examples(here);
}

fn examples(here: &Path) {
    let json = |args: &[&str]| build(here, &[&["-q", "--message-format", "json"], args].concat());
    for (example, name) in [
        ("as-library", "options_library"),
        ("as-program", "options_example"),
    ] {
        let args = ["--example", example];
        assert_eq!(built(&json(&args).succeeded()), [(name.to_owned(), false)].into());
        assert_eq!(built(&json(&args).succeeded()), [(name.to_owned(), true)].into());
    }
    // Building examples keeps the library's ifuncs, and vice versa.
    json(&[]).succeeded();
    written(&["options_one", "options_library", "options_example"]);
    build(here, &["--example", "absent"]).failed(1, &["`absent`", "`as-library`, `as-program`"]);
    // A name in both the library and an example would give one library for two ifuncs.
    write(
        here,
        &[(
            "a/examples/as-program.rs",
            &EXAMPLE.replace("options_example", "options_one"),
        )],
    );
    build(here, &["--example", "as-program"])
        .failed(1, &["two ifuncs are named `options_one`", "options-a", "help: "]);
}
