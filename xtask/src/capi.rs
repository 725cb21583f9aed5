//! `cargo xtask capi-header` and `cargo xtask install-capi`: the C interface of the runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use crate::install::{self, copy};
use crate::man;
use crate::process::{WHOLE, cargo, status};
use crate::steps::Steps;

/// The name that programs look for when they start; `ifunc-capi/build.rs` gives it to the library.
const SONAME: &str = "libifunc_rt.so.0";
/// What a program needs beside the static library: `cargo rustc -p ifunc-capi -- --print native-static-libs`.
const STATIC: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Makes the header anew.
pub(crate) fn header(steps: &mut Steps) {
    steps.step("header of the C interface", || {
        generate(&committed()).map(|()| "written to ifunc-capi/include".into())
    });
}

/// Compares the header with what cbindgen makes of the sources.
pub(crate) fn check_header(steps: &mut Steps) {
    steps.step("header of the C interface", || {
        let new = crate::scratch().join("capi/ifunc_rt.h");
        generate(&new)?;
        if read(&new)? != read(&committed())? {
            return Err(
                "`ifunc-capi/include/ifunc_rt.h` is not what the sources say\nhelp: cargo xtask capi-header"
                    .into(),
            );
        }
        Ok("it is what the sources say".into())
    });
}

fn committed() -> PathBuf {
    crate::root().join("ifunc-capi/include/ifunc_rt.h")
}

/// Runs the package that makes it, which is none of the workspace's.
fn generate(header: &Path) -> Result<(), String> {
    let package = crate::root().join("ifunc-capi");
    let scratch = crate::scratch().join("capi");
    fs::create_dir_all(&scratch).map_err(|e| format!("cannot make `{}`: {e}", scratch.display()))?;
    let mut command = cargo(["run", "--quiet", "--locked", "--manifest-path"]);
    command.arg(package.join("generate/Cargo.toml"));
    command.arg("--").args([&package, header]);
    command.env("CARGO_TARGET_DIR", scratch.join("target"));
    status(command.stdin(Stdio::null()))
}

/// `cargo xtask install-capi --prefix DIR [--debug]`
pub(crate) fn command(options: &[String]) -> ExitCode {
    install::command("install-capi", options, install)
}

/// Builds the library and installs it, with the header, the files by which builds find them, and manual pages.
pub(crate) fn install(prefix: &Path, profile: &str) -> Result<(), String> {
    let mut build = match profile {
        "release" => cargo(["build", "--release", "--locked", "--package", "ifunc-capi"]),
        // All of them: so they have the features with which the tests are built, and share what is compiled.
        _ => cargo(["build", "--quiet", "--lib"].into_iter().chain(WHOLE)),
    };
    status(&mut build)?;
    let (lib, package) = (prefix.join("lib"), crate::root().join("ifunc-capi"));

    copy(&committed(), &prefix.join("include/ifunc_rt.h"))?;
    copy(
        &crate::root().join("ifunc-build/include/ifunc.h"),
        &prefix.join("include/ifunc.h"),
    )?;
    man::write(&prefix.join("share/man"))?;
    install::library(prefix, profile, "ifunc_capi", "ifunc_rt", SONAME)?;
    for (folder, name) in [
        ("pkgconfig", "ifunc_rt.pc"),
        ("cmake/ifunc_rt", "ifunc_rt-config.cmake"),
        ("cmake/ifunc_rt", "ifunc_rt-config-version.cmake"),
    ] {
        let text = read(&package.join("install").join(format!("{name}.in")))?;
        // CMake separates the elements of a list by semicolons.
        let libraries = match name {
            "ifunc_rt.pc" => STATIC.to_owned(),
            _ => STATIC.replace(' ', ";"),
        };
        let text = text
            .replace("@VERSION@", install::VERSION)
            .replace("@SONAME@", SONAME)
            .replace("@STATIC@", &libraries);
        install::write(&lib.join(folder).join(name), &text)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))
}
