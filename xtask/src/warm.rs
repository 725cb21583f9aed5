//! A target directory in which the SDK is compiled. Nested builds of the tests begin with a copy of it: what they would compile
//! first is the same in each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::Tier;
use crate::process::{build_ifuncs, ifunc, status};

/// The variable that tells tests with a target directory of their own where it is.
pub(crate) const VARIABLE: &str = "IFUNC_WARM_TARGET";
/// The directories that projects of tests share, below the checkout's.
const SHARED: [&str; 2] = ["tmp/ifunc", "tmp/projects/ifunc"];
/// The packages of ifuncs of the example whose nightly tests run images.
const TESTED_EXAMPLE: [&str; 2] = [
    "example-11-timeseries-ifuncs",
    "example-11-timeseries-first-ifuncs",
];
const MANIFEST: &str = "[package]\nname = \"warm\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n";
const SOURCE: &str = "#![no_std]\nuse ifunc::prelude::*;\n\n#[ifunc]\npub fn warm(delta: u64, sum: &mut u64) { *sum += delta; }\n";

/// Compiles the SDK in a directory of its own, and copies that to the directories that tests share and that are not there yet.
/// Returns the directory.
pub(crate) fn target(tier: Tier) -> Result<PathBuf, String> {
    let project = crate::scratch().join("warm");
    let target = project.join("target");
    let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", project.display());
    let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
    // A project outside the checkout's workspace, as those of the tests are.
    fs::create_dir_all(project.join("src")).map_err(io)?;
    let manifest = format!("{MANIFEST}ifunc = {{ path = {:?} }}\n", root.join("ifunc"));
    fs::write(project.join("Cargo.toml"), manifest).map_err(io)?;
    fs::write(project.join("src/lib.rs"), SOURCE).map_err(io)?;
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).map_err(io)?;
    // The tests need the images of the checkout, too. Cargo compiles their macros and build scripts in the same way.
    build_ifuncs("ifunc-tests-ifuncs")?;
    if tier == Tier::Nightly {
        for package in TESTED_EXAMPLE {
            build_ifuncs(package)?;
        }
    }
    let macros = crate::target().join("ifunc/ifunc");
    copy(&macros, &crate::target().join("corpus/rust/ifunc"))?;
    copy(&macros, &target.join("ifunc"))?;
    let mut build = ifunc(&["build", "--quiet", "--target-dir"])?;
    status(build.arg(&target).current_dir(&project))?;
    let mut check = ifunc(&["check", "--quiet", "--target-dir"])?;
    status(check.arg(&target).current_dir(&project))?;
    for shared in SHARED {
        copy(&target, &crate::target().join(shared))?;
    }
    Ok(target)
}

/// Copies a folder to a place where none is. The times of files are kept: cargo compares them. The copy appears when it is whole:
/// a build that begins meanwhile makes its own folder.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if to.exists() {
        return Ok(());
    }
    let parent = to.parent().unwrap_or(to);
    let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", parent.display());
    fs::create_dir_all(parent).map_err(io)?;
    let new = to.with_extension("new");
    // What an interrupted run left.
    let _ = fs::remove_dir_all(&new);
    let mut cp = Command::new("cp");
    status(cp.args(["--archive", "--reflink=auto"]).args([from, &new]))?;
    match fs::rename(&new, to) {
        Err(_) if to.exists() => fs::remove_dir_all(&new).map_err(io),
        renamed => renamed.map_err(io),
    }
}
