//! `cargo xtask capi-header` and `cargo xtask install-capi`: the C interface of the runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use crate::man;
use crate::process::{cargo, end, status};
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
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (prefix, profile) = match options[..] {
        ["--prefix", prefix] => (prefix, "release"),
        ["--prefix", prefix, "--debug"] | ["--debug", "--prefix", prefix] => (prefix, "debug"),
        _ => {
            return end(Err(
                "usage: cargo xtask install-capi --prefix DIR [--debug]".into()
            ));
        }
    };
    end(install(Path::new(prefix), profile).map(|()| println!("installed to {prefix}")))
}

/// Builds the library and installs it, with the header, the files by which builds find them, and manual pages.
pub(crate) fn install(prefix: &Path, profile: &str) -> Result<(), String> {
    let mut build = match profile {
        "release" => cargo(["build", "--release", "--locked", "--package", "ifunc-capi"]),
        // All of them: so they have the features with which the tests are built, and share what is compiled.
        _ => cargo(["build", "--quiet", "--workspace", "--locked", "--lib"]),
    };
    status(&mut build)?;
    let built = crate::target().join(profile);
    let version = version()?;
    let real = format!("libifunc_rt.so.{version}");
    let (lib, package) = (prefix.join("lib"), crate::root().join("ifunc-capi"));

    copy(&committed(), &prefix.join("include/ifunc_rt.h"))?;
    copy(
        &crate::root().join("ifunc-build/include/ifunc.h"),
        &prefix.join("include/ifunc.h"),
    )?;
    man::write(&prefix.join("share/man"))?;
    copy(&built.join("libifunc_capi.so"), &lib.join(&real))?;
    copy(&built.join("libifunc_capi.a"), &lib.join("libifunc_rt.a"))?;
    for name in [SONAME, "libifunc_rt.so"] {
        let link = lib.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&real, &link)
            .map_err(|e| format!("cannot make the link `{}`: {e}", link.display()))?;
    }
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
            .replace("@VERSION@", &version)
            .replace("@SONAME@", SONAME)
            .replace("@STATIC@", &libraries);
        write(&lib.join(folder).join(name), text.as_bytes())?;
    }
    Ok(())
}

/// The version of the workspace.
fn version() -> Result<String, String> {
    let manifest = read(&crate::root().join("Cargo.toml"))?;
    let (_, package) = manifest
        .split_once("[workspace.package]")
        .ok_or("the manifest has no [workspace.package]")?;
    let version = package
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(version.ok_or("the workspace has no version")?.to_owned())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|e| format!("cannot read `{}`: {e}", from.display()))?;
    write(to, &bytes)
}

/// Writes a file beside the old one, which programs may use, and puts it in its place.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot write `{}`: {e}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, bytes).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}
