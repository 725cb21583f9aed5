//! Errors that only image builds report. Every file in `tests/image` becomes a package of its own, checked
//! with and without `--cfg ifunc_image`.
//!
//! `//# error: TEXT` expects an error in the image build; a file has exactly as many errors as such lines. A
//! file without one compiles without warnings in both builds. `//# dependency: NAME` renames the dependency
//! on `ifunc`.

#![allow(missing_docs, unreachable_pub, reason = "tests are not documented")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "nightly: compiles the SDK twice more"]
fn image_builds_are_checked() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases: Vec<_> = fs::read_dir(here.join("tests/image"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let mut wrong = String::new();
    for case in &cases {
        let name = case.file_stem().unwrap().to_str().unwrap();
        let source = fs::read_to_string(case).unwrap();
        let directives = |key: &'static str| source.lines().filter_map(move |line| line.strip_prefix(key));
        let expected: Vec<&str> = directives("//# error: ").collect();
        let dependency = directives("//# dependency: ").next().unwrap_or("ifunc");

        let image = check(here, case, name, dependency, true);
        let errors = image.lines().filter(|line| line.starts_with("error")).count();
        let missing: Vec<_> = expected.iter().filter(|text| !image.contains(*text)).collect();
        // cargo's last line counts the errors.
        if errors != expected.len() + usize::from(!expected.is_empty()) || !missing.is_empty() {
            writeln!(wrong, "\n{name}, in an image: lacks {missing:#?}\n{image}").unwrap();
        }
        let ordinary = check(here, case, name, dependency, false);
        if expected.is_empty() && !ordinary.is_empty() {
            writeln!(wrong, "\n{name}:\n{ordinary}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The output of `cargo check` for a package whose only source is `case`; empty without errors and warnings.
fn check(sdk: &Path, case: &Path, name: &str, dependency: &str, image: bool) -> String {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
    let package = scratch.join(name);
    fs::create_dir_all(&package).unwrap();
    fs::write(
        package.join("Cargo.toml"),
        format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[lib]\npath = {case:?}\n\n\
             [dependencies]\n{dependency} = {{ package = \"ifunc\", path = {sdk:?} }}\n\n[workspace]\n"
        ),
    )
    .unwrap();
    // Pins the workspace's versions.
    fs::copy(sdk.join("../Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline", "--color=never", "--target-dir"])
        .arg(scratch.join(if image { "target-image" } else { "target" }))
        .current_dir(&package)
        .env_remove("RUSTFLAGS")
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            if image { "--cfg\x1fifunc_image" } else { "" },
        )
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), !stderr.contains("error"), "{stderr}");
    stderr
}
