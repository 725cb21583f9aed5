//! `cargo xtask package`: what would be published builds by itself.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{OUR_PROFILE, cargo, output, status};
use crate::steps::Steps;

/// Packs every package that is not marked `publish = false`, unpacks what came out, and builds that: each package as it
/// would come from a registry, with the others beside it and nothing of the checkout. Cargo's own verification does the
/// same in a target directory per package, and compiles every dependency seven times over.
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
            "packages, built from what is in them",
            cargo(["build", "--workspace", "--locked"])
                .args(OUR_PROFILE)
                .current_dir(&folder)
                .env("CARGO_TARGET_DIR", crate::target()),
        );
    if built {
        steps.step("a project of the packaged command", || {
            new_project(&names, &folder)
        });
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("cannot write `{}`: {e}", path.display()))
}

/// Names of the members that are for others.
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

/// Makes the packages, and a workspace of what is in them.
fn pack(names: &[String], folder: &Path) -> Result<(), String> {
    let mut package = cargo(["package", "--locked", "--no-verify"]);
    package.env("CARGO_TARGET_DIR", crate::target());
    for name in names {
        package.args(["--package", name]);
    }
    // What is committed, or what a developer has.
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
    // The members are others than the checkout's; every version stays.
    let mut settle = cargo(["metadata", "--format-version=1", "--offline"]);
    settle.current_dir(folder).stdout(Stdio::null());
    status(&mut settle)
}

/// The command that was built from its package knows no checkout: its projects depend on what is published.
fn new_project(names: &[String], folder: &Path) -> Result<String, String> {
    let project = crate::scratch().join("packaged-hello");
    let _ = fs::remove_dir_all(&project);
    let mut new = Command::new(crate::target().join("debug/cargo-ifunc"));
    new.args(["ifunc", "new"]).arg(&project).stdin(Stdio::null());
    status(&mut new)?;
    let manifest = read(&project.join("Cargo.toml"))?;
    let line = format!("ifunc = \"{}\"", env!("CARGO_PKG_VERSION"));
    if !manifest.contains(&line) {
        return Err(format!("its Cargo.toml does not say `{line}`:\n{manifest}"));
    }
    // What a registry would give.
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
        .env("CARGO_TARGET_DIR", crate::target());
    status(&mut check).map(|()| format!("`{line}`"))
}
