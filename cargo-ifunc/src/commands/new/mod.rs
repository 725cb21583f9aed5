//! `cargo ifunc new`

mod name;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::NewArgs;
use crate::error::Failure;
use crate::shell::{Shell, shown};
use template::Dependencies;

/// The checkout that this command was built from.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The name of a package's folder in a registry's sources.
const PACKAGED: &str = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(args: &NewArgs, shell: &mut Shell) -> Result<(), Failure> {
    let root = &args.path;
    let name = root
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name::check(name)?;
    if root.exists() {
        return Err(Failure::Message(format!(
            "`{}` already exists\nhelp: choose another name, or remove it first",
            root.display()
        )));
    }
    let dependencies = dependencies(args)?;

    shell.status("Creating", format_args!("project `{name}` ({})", lang_name(args)));
    for (path, text) in template::files(name, args.lang, &dependencies) {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Failure::io("create", parent))?;
        }
        fs::write(&path, text).map_err(Failure::io("write", &path))?;
        shell.detail("Created", shown(&path));
    }
    if let Dependencies::Path(checkout) = &dependencies {
        // The dependency versions that this version of ifunc was tested with; cargo drops what the project
        // does not use.
        let (from, to) = (checkout.join("Cargo.lock"), root.join("Cargo.lock"));
        if from.is_file() {
            fs::copy(&from, &to).map_err(Failure::io("write", &to))?;
        }
    }
    init_git(root, shell);
    shell.status(
        "Created",
        format_args!("an ifunc package and a host package in `{}`", root.display()),
    );
    shell.verbatim(format_args!("next: cd {} && cargo ifunc run", root.display()));
    Ok(())
}

fn lang_name(args: &NewArgs) -> &'static str {
    match args.lang {
        crate::cli::Lang::Rust => "ifuncs in Rust",
        crate::cli::Lang::C => "ifuncs in C",
        crate::cli::Lang::Mixed => "ifuncs in Rust and C",
    }
}

/// The project's dependencies on `ifunc` and `ifunc-rt`.
fn dependencies(args: &NewArgs) -> Result<Dependencies, Failure> {
    if let Some(url) = &args.git {
        return Ok(Dependencies::Git(url.clone()));
    }
    if let Some(path) = &args.checkout {
        return checkout(path).map(Dependencies::Path).ok_or_else(|| {
            Failure::Usage(format!(
                "`{}` is not a checkout of ifunc: `ifunc/Cargo.toml` or `ifunc-rt/Cargo.toml` is missing\n\
                 help: --path takes the folder that contains both",
                path.display()
            ))
        });
    }
    if Path::new(env!("CARGO_MANIFEST_DIR")).ends_with(PACKAGED) {
        return Ok(Dependencies::Published);
    }
    checkout(Path::new(BUILT_FROM))
        .map(Dependencies::Path)
        .ok_or_else(|| {
            Failure::Usage(
                "the checkout that this command was built from no longer exists\n\
             help: give the location of ifunc: `--path CHECKOUT` or `--git URL`"
                    .into(),
            )
        })
}

/// The command that adds the dependency on `ifunc` to a package.
pub(crate) fn how_to_add() -> String {
    if Path::new(env!("CARGO_MANIFEST_DIR")).ends_with(PACKAGED) {
        return "cargo add ifunc".into();
    }
    match checkout(Path::new(BUILT_FROM)) {
        Some(checkout) => format!("cargo add --path {}", checkout.join("ifunc").display()),
        None => "cargo add ifunc --git URL".into(),
    }
}

fn checkout(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    ["ifunc", "ifunc-rt"]
        .iter()
        .all(|krate| path.join(krate).join("Cargo.toml").is_file())
        .then_some(path)
}

/// Creates a repository as `cargo new` does, unless the folder is inside one.
fn init_git(root: &Path, shell: &mut Shell) {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !git(&["rev-parse", "--is-inside-work-tree"]) && !git(&["init", "--quiet"]) {
        shell.warning("`git init` failed; the project has no repository");
    }
}
