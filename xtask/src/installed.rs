//! The C libraries, installed as a user installs them, and what a user does with them there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::blocks::blocks;
use crate::process::{built, output, status};
use crate::steps::Steps;
use crate::{capi, debian};

/// Compilers, and what they take the program for.
const COMPILERS: [(&str, &[&str]); 4] = [
    ("gcc", &["-std=c99"]),
    ("clang", &["-std=c99"]),
    ("g++", &["-std=c++11", "-x", "c++"]),
    ("clang++", &["-std=c++11", "-x", "c++"]),
];

/// A prefix to which the C libraries are installed as tests are built.
pub(crate) fn prefix() -> Result<PathBuf, String> {
    let prefix = crate::scratch().join("prefix");
    fs::create_dir_all(&prefix).map_err(|e| format!("cannot create `{}`: {e}", prefix.display()))?;
    let prefix = prefix.canonicalize().map_err(|e| e.to_string())?;
    capi::install(&prefix, "debug")?;
    Ok(prefix)
}

/// Programs in C and C++ build and run against the prefix, by pkg-config and by CMake if it is there; manual pages are found.
pub(crate) fn run(steps: &mut Steps) {
    if !debian::is_debian() {
        return;
    }
    let mut prefix = PathBuf::new();
    let is_installed = steps.step("the C libraries, installed", || {
        prefix = prefix_and_folder()?;
        Ok(String::new())
    });
    if is_installed {
        steps.step("C and C++ programs by pkg-config", || by_pkg_config(&prefix));
        if debian::exists("cmake") {
            steps.step("C and C++ programs by CMake", || by_cmake(&prefix));
        }
        steps.step("installed manual pages", || manual(&prefix));
        steps.step("docs/c.md", || guide(&prefix));
    }
}

fn prefix_and_folder() -> Result<PathBuf, String> {
    fs::create_dir_all(folder()).map_err(|e| format!("cannot create `{}`: {e}", folder().display()))?;
    prefix()
}

fn folder() -> PathBuf {
    crate::scratch().join("installed")
}

fn sources() -> PathBuf {
    crate::root().join("tests/installed")
}

/// What pkg-config says of a package.
fn pkg_config(prefix: &Path, options: &[&str]) -> Result<Vec<String>, String> {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config
        .args(options)
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .stdin(Stdio::null());
    Ok(output(&mut pkg_config)?
        .split_whitespace()
        .map(str::to_owned)
        .collect())
}

fn by_pkg_config(prefix: &Path) -> Result<String, String> {
    let flags = pkg_config(prefix, &["--cflags", "--libs", "ifunc_rt"])?;
    for (compiler, language) in COMPILERS {
        let program = folder().join(compiler);
        let mut command = Command::new(compiler);
        command
            .args(language)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .arg(sources().join("program.c"))
            .args(["-x", "none", "-o"])
            .arg(&program)
            .args(&flags)
            .stdin(Stdio::null());
        status(&mut command)?;
        runs(&program, prefix)?;
    }
    Ok(format!("{} compilers", COMPILERS.len()))
}

fn by_cmake(prefix: &Path) -> Result<String, String> {
    let build = folder().join("cmake");
    let _ = fs::remove_dir_all(&build);
    let mut configure = Command::new("cmake");
    configure
        .arg("-S")
        .arg(sources())
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    status(&mut configure)?;
    status(Command::new("cmake").arg("--build").arg(&build))?;
    let programs = ["in_c", "in_cpp", "static"];
    for program in programs {
        runs(&build.join(program), prefix)?;
    }
    Ok(programs.join(", "))
}

/// The program ends well, and says which version it has.
fn runs(program: &Path, prefix: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .arg(format!("shm:installed-{}", std::process::id()))
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .stdin(Stdio::null());
    let said = output(&mut command)?;
    match said.trim() == format!("version {}", env!("CARGO_PKG_VERSION")) {
        true => Ok(()),
        false => Err(format!("`{}` said `{}`", program.display(), said.trim())),
    }
}

/// Runs the blocks of `docs/c.md` in order, as its reader does: in an empty folder outside of the checkout, with what was installed.
fn guide(prefix: &Path) -> Result<String, String> {
    let path = crate::root().join("docs/c.md");
    let text = fs::read_to_string(&path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
    let command = built(&["cargo-ifunc"])?.join("cargo-ifunc");
    let home = std::env::temp_dir().join(format!("ifunc-guide-{}", std::process::id()));
    fs::create_dir(&home).map_err(|e| format!("cannot create `{}`: {e}", home.display()))?;
    let (mut printed, mut expected, mut result) = (String::new(), String::new(), Ok(()));
    for block in &blocks(&text) {
        match block.language() {
            "text" => expected = block.text.clone(),
            "sh" if !block.is_only_read() && result.is_ok() => {
                let mut bash = Command::new("bash");
                bash.args(["-euo", "pipefail", "-c"])
                    .arg(format!("cargo() {{ \"$CARGO_IFUNC\" \"$@\"; }}\n{}", block.text))
                    .current_dir(&home)
                    .env("CARGO_IFUNC", &command)
                    .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                    .env("LD_LIBRARY_PATH", prefix.join("lib"))
                    // The address in it is everybody's.
                    .env("IFUNC_RUNTIME_DIR", &home)
                    .env_remove("IFUNC_LIB_DIR")
                    .stdin(Stdio::null());
                match output(&mut bash) {
                    Ok(said) => printed += &said,
                    Err(why) => result = Err(format!("line {}: {why}", block.line)),
                }
            }
            _ => {}
        }
    }
    let _ = fs::remove_dir_all(&home);
    result?;
    match printed == expected {
        true => Ok(String::new()),
        false => Err(format!("it printed\n{printed}and not\n{expected}")),
    }
}

/// Pages of the command and of the C interface are where `man` looks.
fn manual(prefix: &Path) -> Result<String, String> {
    let folder = prefix.join("share/man");
    for page in [
        "man1/cargo-ifunc.1",
        "man1/cargo-ifunc-build.1",
        "man3/ifunc_rt.3",
        "man3/ifunc_source_connect.3",
    ] {
        let path = folder.join(page);
        let text = fs::read_to_string(&path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
        if !text.contains(".SH NAME") {
            return Err(format!("`{}` is no manual page", path.display()));
        }
    }
    let count = ["man1", "man3"].map(|part| fs::read_dir(folder.join(part)).map_or(0, Iterator::count));
    Ok(format!("{} pages", count.iter().sum::<usize>()))
}
