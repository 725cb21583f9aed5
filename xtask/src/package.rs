//! `cargo xtask package`: the published crates build from their packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{OUR_PROFILE, cargo, output, status};
use crate::steps::Steps;

/// Packs every package that is not marked `publish = false`, unpacks them and builds them as a workspace: each as it comes from
/// a registry, without files of the checkout. Cargo's own verification uses a target directory per package, and compiles every
/// dependency once for each.
pub(crate) fn run(steps: &mut Steps) {
    let folder = crate::scratch().join("packages");
    let mut names = Vec::new();
    let packed = steps.step("packages", || {
        names = published()?;
        pack(&names, &folder)?;
        Ok(names.join(", "))
    });
    let built = packed
        && steps.command(
            "packages, built",
            cargo(["build", "--workspace", "--locked"])
                .args(OUR_PROFILE)
                .current_dir(&folder)
                .env("CARGO_TARGET_DIR", unpacked_target()),
        );
    if built {
        steps.step("a project of the packaged command", || {
            new_project(&names, &folder)
        });
    }
}

/// Where the unpacked crates are built. Cargo gives the libraries that C links the same file names as the checkout's: in one
/// directory each would take the other's for its own.
fn unpacked_target() -> PathBuf {
    crate::scratch().join("packages-target")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
}

/// The names of the published members.
fn published() -> Result<Vec<String>, String> {
    let workspace = read(&crate::root().join("Cargo.toml"))?;
    let members = workspace.split_once("members = [").map_or("", |(_, rest)| rest);
    let members = members.split_once(']').map_or("", |(members, _)| members);
    let mut names = Vec::new();
    for member in members.split('"').skip(1).step_by(2) {
        let manifest = read(&crate::root().join(member).join("Cargo.toml"))?;
        if manifest.lines().any(|line| line == "publish = false") {
            continue;
        }
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        names.push(
            name.ok_or_else(|| format!("`{member}/Cargo.toml` names no package"))?
                .to_owned(),
        );
    }
    match names.is_empty() {
        true => Err("no member of the workspace is for others".into()),
        false => Ok(names),
    }
}

/// Packs the crates and unpacks them into a workspace.
fn pack(names: &[String], folder: &Path) -> Result<(), String> {
    let mut package = cargo(["package", "--locked", "--no-verify"]);
    package.env("CARGO_TARGET_DIR", crate::target());
    for name in names {
        package.args(["--package", name]);
    }
    // A developer may have uncommitted changes.
    let mut git = Command::new("git");
    git.args(["status", "--porcelain"])
        .current_dir(crate::root())
        .stdin(Stdio::null());
    if !output(&mut git)?.trim().is_empty() {
        package.arg("--allow-dirty");
    }
    status(&mut package)?;

    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    let mut manifest =
        String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*-*.*.*\"]\n\n[patch.crates-io]\n");
    for name in names {
        let unpacked = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let mut tar = Command::new("tar");
        tar.arg("-xzf")
            .arg(crate::target().join("package").join(format!("{unpacked}.crate")));
        status(tar.current_dir(folder).stdin(Stdio::null()))?;
        manifest.push_str(&format!("{name} = {{ path = \"{unpacked}\" }}\n"));
    }
    write(&folder.join("Cargo.toml"), &manifest)?;
    write(
        &folder.join("Cargo.lock"),
        &read(&crate::root().join("Cargo.lock"))?,
    )?;
    // Adapts the lock file to the members of this workspace, with the same versions.
    let mut settle = cargo(["metadata", "--format-version=1", "--offline"]);
    settle.current_dir(folder).stdout(Stdio::null());
    status(&mut settle)
}

/// The command that was built from its package makes projects that depend on published crates.
fn new_project(names: &[String], folder: &Path) -> Result<String, String> {
    let project = crate::scratch().join("packaged-hello");
    let _ = fs::remove_dir_all(&project);
    let mut new = Command::new(unpacked_target().join("debug/cargo-ifunc"));
    new.args(["ifunc", "new"]).arg(&project).stdin(Stdio::null());
    status(&mut new)?;
    let manifest = read(&project.join("Cargo.toml"))?;
    let line = format!("ifunc = \"{}\"", env!("CARGO_PKG_VERSION"));
    if !manifest.contains(&line) {
        return Err(format!("its Cargo.toml does not say `{line}`:\n{manifest}"));
    }
    // Replaces the registry by the unpacked packages.
    let mut check = cargo(["check", "--workspace", "--all-targets", "--offline"]);
    check.args(OUR_PROFILE);
    for name in names {
        let package = folder.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
        check
            .arg("--config")
            .arg(format!("patch.crates-io.{name}.path={package:?}"));
    }
    write(&project.join("Cargo.lock"), &read(&folder.join("Cargo.lock"))?)?;
    check
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", unpacked_target());
    status(&mut check).map(|()| format!("`{line}`"))
}
