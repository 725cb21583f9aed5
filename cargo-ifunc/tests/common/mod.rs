//! Helpers for the tests of the command.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

/// The target directory of all tests: their projects' dependencies are compiled once.
pub(crate) const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/projects");
/// The image directory in it.
pub(crate) const IMAGES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/projects/ifunc");

/// Locks the shared target directory: libraries of the same name overwrite each other.
pub(crate) fn lock_target() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// A process that is killed when the test ends, even by a panic.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a target, and waits until it says that it listens at this address. With it, what else it prints.
pub(crate) fn listening(target: &mut Command, address: &str) -> (Killed, BufReader<ChildStdout>) {
    let mut child = target
        .env("IFUNC_ADDR", address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{target:?}: {error}"));
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let target = Killed(child);
    let mut ready = String::new();
    out.read_line(&mut ready).expect("a line");
    assert_eq!(ready, format!("ifunc: ready {address}\n"));
    (target, out)
}

/// The result of running the command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "standard error:\n{}\nstandard output:\n{}",
            self.err,
            self.out
        );
        self
    }

    /// Asserts that the command failed with `code` and that standard error contains all of `texts`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, texts: &[&str]) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "standard error:\n{}\nstandard output:\n{}",
            self.err,
            self.out
        );
        for text in texts {
            assert!(self.err.contains(text), "`{text}` is not in\n{}", self.err);
        }
        self
    }
}

/// `cargo ifunc ARGS` in `folder`, as cargo starts it.
pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-ifunc"));
    command
        .arg("ifunc")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null());
    for name in [
        "CARGO_TERM_COLOR",
        "CLICOLOR_FORCE",
        "NO_COLOR",
        "CARGO_TARGET_DIR",
        "IFUNC_TRANSPORT",
        "IFUNC_LIB_DIR",
    ] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the command starts");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn ifunc(folder: &Path, args: &[&str]) -> Ran {
    ran(&mut command(folder, args))
}

pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the checkout is there")
}

/// Writes files below `folder`. A package or a workspace gets the versions of the checkout, which are compiled already.
pub(crate) fn write(folder: &Path, files: &[(&str, &str)]) {
    if files.iter().any(|(path, _)| *path == "Cargo.toml") {
        std::fs::create_dir_all(folder).expect("folder");
        std::fs::copy(checkout().join("Cargo.lock"), folder.join("Cargo.lock")).expect("Cargo.lock");
    }
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder");
        std::fs::write(path, text).expect("file");
    }
}

/// The manifest of an ifunc package.
pub(crate) fn ifunc_manifest(name: &str) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nifunc = {{ path = {:?} }}\n",
        checkout().join("ifunc")
    )
}

/// A C ifunc of this name that adds to a `uint64_t`.
pub(crate) fn c_ifunc(name: &str) -> String {
    format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n\
         void announce(uint64_t value);\n\
         size_t {name}_payload_bound(void *args, size_t n) {{ (void)args; return n; }}\n\
         int {name}_payload_init(void *args, size_t n, void *payload, size_t *size)\n\
         {{ memcpy(payload, args, n); *size = n; return 0; }}\n\
         void {name}_main(void *payload, size_t size, void *target)\n\
         {{ uint64_t d, *c = target; if (size != sizeof d) return; memcpy(&d, payload, size); *c += d; announce(*c); }}\n"
    )
}
