//! Optimisation, link-time optimisation and needed libraries of Rust packages.

use std::path::{Path, PathBuf};

use crate::common::workspace::{DEPENDS, Workspace};
use ifunc_abi::image::Image;
use ifunc_build::{BuildOptions, OptLevel, Progress, Quiet, build_packages};

/// An ifunc that calls a function out of line without optimisation, and one with an import.
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
#[ignore = "nightly: compiles the SDK with four settings; the corpus builds with others than the default, too"]
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
        // Only an image with an import needs the library that may define it.
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
    // Without link-time optimisation the image is of the same kind.
    let apart = built(None, false);
    assert!(Image::parse(&apart).is_ok() && apart.len() < none.len());
    assert_eq!(built(None, true), best, "one setting does not affect another");
}

/// A user's settings for other builds. Only the choice of linker and compiler affects images.
const OF_THE_USER: &str = "[build]
incremental = true
rustflags = [\"--cfg=leaked\"]
[target.'cfg(all())']
rustflags = [\"--cfg=leaked\"]
[profile.ifunc]
inherits = \"dev\"
opt-level = 1
lto = false
[profile.release]
debug-assertions = true
overflow-checks = true
codegen-units = 16
[profile.release.package.\"*\"]
opt-level = 0
codegen-units = 16
debug-assertions = true
overflow-checks = true
[profile.ifunc.package.untouched]
opt-level = 1
codegen-units = 16
debug-assertions = true
";

#[test]
#[ignore = "nightly: compiles the SDK three times"]
fn what_the_user_sets_for_builds_of_his_own_is_not_in_images() {
    // The environment is that of a process: this test runs itself again, with another.
    const FOLDER: &str = "IFUNC_TEST_WORKSPACE";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let workspace = Workspace::new(&[]);
        println!("{}", ids(&workspace, Path::new(&folder)));
        return;
    }
    let workspace = Workspace::new(&["untouched"]);
    let text = SOURCE.replace("steps", "untouched").replace(
        "*total += crc32",
        "if cfg!(leaked) || cfg!(debug_assertions) { return 7; } *total += crc32",
    );
    let text = text.replace("checked", "checked_untouched");
    workspace.package("untouched", DEPENDS, &text);
    let built = build_packages(&workspace.options(), &mut Quiet).unwrap();
    let expected: Vec<_> = built.iter().map(|ifunc| ifunc.id).collect();

    let config = workspace.dir.path().join(".cargo");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(config.join("config.toml"), OF_THE_USER).unwrap();
    let expected = format!("{expected:?}");
    assert_eq!(
        ids(&workspace, workspace.dir.path()),
        expected,
        "the configuration"
    );

    std::fs::remove_dir_all(&config).unwrap();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "--nocapture", "--include-ignored"])
        .arg("settings::what_the_user_sets_for_builds_of_his_own_is_not_in_images")
        .env(FOLDER, workspace.dir.path())
        .envs([
            ("CARGO_INCREMENTAL", "1"),
            ("CARGO_BUILD_INCREMENTAL", "true"),
            ("CARGO_PROFILE_IFUNC_OPT_LEVEL", "1"),
            ("CARGO_PROFILE_IFUNC_LTO", "off"),
            ("CARGO_PROFILE_IFUNC_DEBUG_ASSERTIONS", "true"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            ("CARGO_PROFILE_RELEASE_PANIC", "unwind"),
            ("CARGO_BUILD_RUSTFLAGS", "--cfg=leaked"),
            ("RUSTFLAGS", "--cfg=leaked"),
            ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "--cfg=leaked"),
            ("RUSTC_BOOTSTRAP", "1"),
        ]);
    let output = again.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        stdout.contains(&expected),
        "the environment: {stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The images of the workspace in a folder, built with the default options.
fn ids(like: &Workspace, folder: &Path) -> String {
    let options = BuildOptions {
        current_dir: Some(folder.into()),
        manifest_path: Some(folder.join("Cargo.toml")),
        ..like.options()
    };
    let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
    format!("{:?}", built.iter().map(|ifunc| ifunc.id).collect::<Vec<_>>())
}

/// Needs `-Iinclude` and `-include near.h` to be compiled.
const WITH_HEADERS: &str = r#"#include <scale.h>
#include <string.h>
size_t relative_payload_bound(void *args, size_t n) { (void)args; return n; }
int relative_payload_init(void *args, size_t n, void *payload, size_t *size)
{ memcpy(payload, args, n); *size = n; return 0; }
void relative_main(void *payload, size_t n, void *target)
{
    static const char *volatile text = SCALE NEAR __FILE__;
    (void)payload; (void)n;
    strcpy(target, text);
}
"#;

#[test]
fn relative_paths_in_a_manifest_begin_at_the_package() {
    let workspace = Workspace::new(&["with-headers"]);
    let manifest = format!(
        "{DEPENDS}\n[package.metadata.ifunc]\ncflags = [\"-Iinclude\", \"-include\", \"near.h\", \"-Wall\"]\n"
    );
    let folder = workspace.package("with-headers", &manifest, "#![no_std]\n");
    for (path, text) in [
        ("c/relative.c", WITH_HEADERS),
        ("include/scale.h", "#define SCALE \"scale \"\n"),
        (
            "near.h",
            "#include <stddef.h>\n#define NEAR \"near \"\nstatic int unused;\n",
        ),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut received = Received::default();
    let built = build_packages(&workspace.options(), &mut received).unwrap_or_else(|error| panic!("{error}"));
    // The path of the package is not in the image.
    let text = b"scale near c/relative.c\0";
    let image = &built[0].image;
    assert!(image.windows(text.len()).any(|bytes| bytes == text), "{image:?}");
    assert!(
        received.diagnostics.contains("near.h:3:"),
        "{}",
        received.diagnostics
    );
    let read = ["c/relative.c", "include/scale.h", "near.h"].map(|path| folder.join(path));
    for path in read {
        assert!(received.read.contains(&path), "{path:?} {:?}", received.read);
    }
    let of_the_system = |path: &PathBuf| !path.starts_with(&folder);
    assert!(!received.read.iter().any(of_the_system), "{:?}", received.read);

    // In memory, too.
    let options = ifunc_build::CheckOptions {
        build: workspace.options(),
        ..ifunc_build::CheckOptions::default()
    };
    let checked = ifunc_build::check_packages(&options, &mut Quiet).unwrap();
    assert!(checked.errors.is_empty(), "{checked:?}");
}

/// The diagnostics of the C compiler, and the files that it reads.
#[derive(Default)]
struct Received {
    diagnostics: String,
    read: Vec<PathBuf>,
}

impl Progress for Received {
    fn diagnostic(&mut self, rendered: &str) {
        self.diagnostics += rendered;
    }

    fn read(&mut self, file: &Path) {
        self.read.push(file.into());
    }
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

#[test]
#[ignore = "nightly: compiles the SDK with flags of its own"]
fn a_package_has_cfg_and_flags_of_its_own() {
    let workspace = Workspace::new(&["configured"]);
    let manifest = format!(
        "{DEPENDS}\n[package.metadata.ifunc]\ncfg = ['backend=\"custom\"']\nrustflags = [\"-C\", \"overflow-checks=on\"]\n"
    );
    let source = "#![no_std]
use ifunc::prelude::*;
#[cfg(not(backend = \"custom\"))]
compile_error!(\"the configuration is missing\");
#[ifunc]
pub fn configured(n: u64, total: &mut u64) -> u64 { *total += n; *total }
";
    workspace.package("configured", &manifest, source);
    let built = build_packages(&workspace.options(), &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
    let image = Image::parse(&built[0].image).unwrap();
    assert!(
        image.imports().any(|import| import.symbol == "__ifunc_panic"),
        "no check of the sum"
    );

    // A neighbour has other flags, and the same dependencies: neither build undoes the other's.
    let workspace = Workspace::new(&["configured", "plain"]);
    workspace.package("configured", &manifest, source);
    let plain = "#![no_std]
use ifunc::prelude::*;
#[ifunc]
pub fn plain(n: u64, total: &mut u64) -> u64 { *total += n; *total }
";
    workspace.package("plain", DEPENDS, plain);
    let compiled = || {
        let mut compiled = Compiled::default();
        let built = build_packages(&workspace.options(), &mut compiled);
        built.unwrap_or_else(|error| panic!("{error}"));
        compiled.0
    };
    assert_ne!(compiled(), [""; 0]);
    assert_eq!(compiled(), [""; 0]);
}

/// What cargo says that it compiles.
#[derive(Default)]
struct Compiled(Vec<String>);

impl Progress for Compiled {
    fn cargo(&mut self, line: &str) {
        if line.trim_start().starts_with("Compiling ") {
            self.0.push(line.trim().into());
        }
    }
}

#[test]
fn flags_that_would_break_images_are_refused() {
    for (setting, why) in [
        ("rustflags = [\"-Cpanic=unwind\"]", "images do not unwind"),
        (
            "rustflags = [\"-Ctarget-cpu=native\"]",
            "`cpu` in `[package.metadata.ifunc]`",
        ),
        (
            "cfg = [\"ifunc_image\"]",
            "is set by the compiler or by the builder",
        ),
    ] {
        let workspace = Workspace::new(&["refused"]);
        let manifest = format!("{DEPENDS}\n[package.metadata.ifunc]\n{setting}\n");
        workspace.package("refused", &manifest, "#![no_std]\n");
        let error = build_packages(&workspace.options(), &mut Quiet)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("package `refused`") && error.contains(why),
            "{error}"
        );
    }
}
