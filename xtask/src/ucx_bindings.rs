//! `cargo xtask ucx-bindings`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::process::{cargo, status};
use crate::steps::Steps;

const FILES: [&str; 2] = ["types.rs", "functions.rs"];
/// Where the headers lie on Debian.
const HEADER: &str = "/usr/include/ucp/api/ucp.h";

/// Makes the bindings anew.
pub(crate) fn write(steps: &mut Steps) {
    steps.step("bindings to UCX", || {
        generate(&committed()).map(|()| format!("written to {}", shown(&committed())))
    });
}

/// Compares the bindings with what the headers say.
pub(crate) fn check(steps: &mut Steps) {
    steps.step("bindings to UCX", compare);
}

/// As [`check`], where there is what it needs: libclang is much to ask of everybody who runs the tests.
pub(crate) fn check_if_possible(steps: &mut Steps) {
    steps.step("bindings to UCX", || {
        if !Path::new(HEADER).exists() {
            return Ok("not compared: the headers of UCX are not here (libucx-dev)".into());
        }
        if !has_libclang() {
            return Ok("not compared: libclang is not here (libclang-dev)".into());
        }
        compare()
    });
}

fn compare() -> Result<String, String> {
    let folder = crate::scratch().join("ucx-bindings/new");
    fs::create_dir_all(&folder).map_err(|e| format!("cannot make `{}`: {e}", folder.display()))?;
    generate(&folder)?;
    for file in FILES {
        let read = |folder: &Path| {
            let path = folder.join(file);
            fs::read_to_string(&path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))
        };
        let (ours, new) = (read(&committed())?, read(&folder)?);
        if ours != new {
            let line = ours.lines().zip(new.lines()).take_while(|(a, b)| a == b).count() + 1;
            return Err(format!(
                "`{file}` is not what the headers of UCX 1.13 say, from line {line} on\nhelp: cargo xtask ucx-bindings"
            ));
        }
    }
    Ok("they are what the headers of UCX 1.13 say".into())
}

/// Runs the package that makes them, which is none of the workspace's.
fn generate(folder: &Path) -> Result<(), String> {
    let manifest = crate::root().join("ucx-sys/generate/Cargo.toml");
    let mut command = cargo(["run", "--quiet", "--locked", "--manifest-path"]);
    command.arg(manifest).arg("--").arg(folder);
    command.env("CARGO_TARGET_DIR", crate::scratch().join("ucx-bindings"));
    status(command.stdin(Stdio::null()))
}

fn committed() -> PathBuf {
    crate::root().join("ucx-sys/src/bindings")
}

fn shown(path: &Path) -> String {
    path.strip_prefix(crate::root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Whether there is a libclang where distributions put it.
fn has_libclang() -> bool {
    let mut folders = vec![
        PathBuf::from("/usr/lib64"),
        PathBuf::from("/usr/lib/x86_64-linux-gnu"),
        PathBuf::from("/usr/lib/aarch64-linux-gnu"),
    ];
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders.extend(llvm.map(|entry| entry.path().join("lib")));
    folders.extend(std::env::var_os("LIBCLANG_PATH").map(PathBuf::from));
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    files.into_iter().any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libclang.so")
            || name.starts_with("libclang-") && name.contains(".so") && !name.contains("cpp")
    })
}
