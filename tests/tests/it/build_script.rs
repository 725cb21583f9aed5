//! A program that carries its images: its build script builds them, and its one file is all there is at run time.
//!
//! One test, one workspace, whose state each part takes over from the one before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Process, unique_shm, workspace};

/// Why one transport is enough here.
const WHY: &str = "images that a program carries are looked for nowhere, whichever way they travel";

/// `tests/fixtures/carried`, laid out where cargo builds it.
struct Carried {
    root: PathBuf,
}

impl Carried {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("carried");
        let fixture = workspace().join("tests/fixtures/carried");
        // What is compiled stays from run to run, what is written does not.
        for part in ["host", "far", "shared"] {
            let _ = fs::remove_dir_all(root.join(part));
            lay_out(&fixture.join(part), &root.join(part));
        }
        for part in ["host", "far"] {
            fs::copy(workspace().join("Cargo.lock"), root.join(part).join("Cargo.lock")).unwrap();
        }
        let carried = Self { root };
        // Cargo drops from the lock files what is not needed. In `far` that would be news for the build script.
        for part in ["host", "far"] {
            let mut metadata = carried.cargo(&["metadata", "--format-version=1", "--offline"]);
            succeeded(metadata.current_dir(carried.root.join(part)));
        }
        carried
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Cargo in the program's workspace, as its user would call it: nothing of the cargo that runs this test; flags of
    /// his own; intermediate files in a directory that the cargo of the build script must keep away from, which is
    /// locked.
    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("CARGO") && name != "CARGO_HOME" {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.path("host"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env("CARGO_BUILD_BUILD_DIR", self.path("build"))
            // Debug information would only cost time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("RUSTFLAGS", "--cfg=leaked --check-cfg=cfg(leaked)");
        command
    }

    /// Builds with what is there for one job: the cargo of the build script must not wait for a second.
    fn build(&self) -> PathBuf {
        succeeded(&mut self.cargo(&["build", "--offline", "-j1"]));
        self.path("target/debug/carried-app")
    }

    /// What the program depends on, and the program once: as many jobs as there are CPUs.
    fn build_all(&self) {
        succeeded(&mut self.cargo(&["build", "--offline"]));
    }

    /// What is not fresh, as cargo says it of each build script, library and program.
    fn compiled_again(&self) -> Vec<String> {
        let output = succeeded(&mut self.cargo(&["build", "--offline", "--verbose"]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let fresh = said
            .lines()
            .filter(|line| line.trim_start().starts_with("Fresh "))
            .count();
        assert!(fresh > 20, "the whole tree is looked at:\n{said}");
        said.lines()
            .map(str::trim_start)
            // Another cargo may download or compile at the same time.
            .filter(|line| {
                let says_nothing = ["Fresh ", "Finished ", "Blocking waiting for file lock "];
                !says_nothing.iter().any(|text| line.starts_with(text))
            })
            .map(str::to_owned)
            .collect()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }
}

/// Copies a folder of the fixture; manifests are named so that no cargo takes them for members of the checkout.
fn lay_out(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            lay_out(&path, &to.join(name));
        } else if name == "manifest.toml" {
            let text = fs::read_to_string(path).unwrap();
            let text = text.replace("CHECKOUT", workspace().to_str().unwrap());
            fs::write(to.join("Cargo.toml"), text).unwrap();
        } else {
            fs::copy(path, to.join(name)).unwrap();
        }
    }
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}");
    output
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{command:?}\n{text}");
    text
}

/// Runs the program as target and as source, alone in an empty folder. What the source says.
fn run_alone(executable: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("app");
    fs::copy(executable, &alone).unwrap();
    let start = |role: &str, address: &str| {
        let mut command = Command::new(&alone);
        command
            .args([role, address])
            .current_dir(folder.path())
            .env_remove("IFUNC_LIB_DIR")
            .env_remove("UCX_IFUNC_LIB_DIR");
        command
    };
    let address = unique_shm(WHY).unwrap();
    let mut target = Process::start(&mut start("target", &address));
    target.wait_for(&format!("ifunc: ready {address}"));
    let said = succeeded(&mut start("source", &address));
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing but the program"
    );
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "nightly: compiles the runtime and the builder once more"]
fn one_file_is_all_there_is() {
    if unique_shm(WHY).is_none() {
        return;
    }
    let carried = Carried::new();
    carried.build_all();
    let executable = carried.build();
    assert_eq!(run_alone(&executable), ["deposit 15", "balance 15", "tripled 52"]);
    assert_eq!(
        carried.compiled_again(),
        Vec::<String>::new(),
        "nothing has changed"
    );

    // What a package includes that an ifunc package in another workspace depends on; and a header.
    carried.write("shared/src/bonus.txt", "6\n");
    carried.write("host/app/include/factor.h", "#define FACTOR 2\n");
    let executable = carried.build();
    assert_eq!(run_alone(&executable), ["deposit 16", "balance 16", "tripled 39"]);
    assert_eq!(
        carried.compiled_again(),
        Vec::<String>::new(),
        "nothing has changed"
    );

    // What a package asks of the environment while it is compiled.
    succeeded(carried.cargo(&["build", "--offline"]).env("CARRIED_TAG", "four"));
    assert_eq!(run_alone(&executable), ["deposit 20", "balance 20", "tripled 47"]);

    // Clippy stands in the compiler's place, and has something to say of what it looks at itself.
    carried.write("shared/src/bonus.txt", "7\n");
    succeeded(&mut carried.cargo(&["clippy", "--offline", "--", "-D", "warnings"]));
    let executable = carried.build();
    assert_eq!(run_alone(&executable)[0], "deposit 17");
    let tested = succeeded(&mut carried.cargo(&["test", "--offline"]));
    assert!(String::from_utf8_lossy(&tested.stdout).contains("the_images_are_here ... ok"));

    // What goes wrong is said by cargo, with what to do.
    let build = ["build", "--offline"];
    let script = fs::read_to_string(carried.path("host/app/build.rs")).unwrap();
    carried.write(
        "host/app/build.rs",
        "fn main() { ifunc_build::script::Images::new().package(\"ifunc-rt\").build(); }\n",
    );
    let text = refused(&mut carried.cargo(&build));
    assert!(
        text.contains("`ifunc-rt` is not an ifunc package: it is a crate of the runtime"),
        "{text}"
    );
    carried.write(
        "host/app/build.rs",
        "fn main() { ifunc_build::script::Images::new().package(\"fra-ifuncs\").build(); }\n",
    );
    let text = refused(&mut carried.cargo(&build));
    assert!(
        text.contains("error: carried-app@0.1.0: package `carried-app` does not depend on `fra-ifuncs`"),
        "{text}"
    );
    assert!(
        text.contains("help: the ifunc packages that it depends on are: `far-ifuncs`"),
        "{text}"
    );
    carried.write(
        "host/app/build.rs",
        "fn main() { ifunc_build::script::Images::new().package(\"far-ifuncs\").build(); }\n",
    );
    let text = refused(&mut carried.cargo(&build));
    assert!(
        text.contains("no image of `tell_balance`; the build script built `deposit`; help: "),
        "{text}"
    );
    assert!(text.contains("no image of `triple`"), "{text}");
    carried.write("host/app/build.rs", "fn main() {}\n");
    let text = refused(&mut carried.cargo(&build));
    assert!(
        text.contains("this package's build script builds no images; help: in build.rs: "),
        "{text}"
    );
    carried.write("host/app/build.rs", &script);
    carried.write("far/src/lib.rs", "#![no_std]\nuse ifunc::prelude::*;\npub use carried_shared::Account;\n#[ifunc]\npub fn deposit(n: u64, account: &mut Account) -> u64 { extern crate std; n + account.balance }\n");
    let text = refused(&mut carried.cargo(&build));
    assert!(
        text.contains("could not compile ifunc package `far-ifuncs`"),
        "{text}"
    );
}
