//! Errors of a build script.

use std::path::{Path, PathBuf};

use crate::BuildError;

/// Why a build script failed. The text states the cause and, in lines that begin with `help: `, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A variable that cargo sets for build scripts is missing.
    #[error(
        "`{variable}` is not set: this is not a build script\nhelp: call it in the `main` of a package's build.rs; elsewhere, `ifunc_build::build_packages` builds"
    )]
    NotAScript {
        /// The variable.
        variable: &'static str,
    },
    /// `cargo metadata` failed.
    #[error("`cargo metadata` of `{}` failed: {reason}", manifest.display())]
    Metadata {
        /// The manifest.
        manifest: PathBuf,
        /// Cargo's message.
        reason: String,
    },
    /// The program does not depend on a named package.
    #[error(
        "package `{package}` does not depend on `{name}`, which its build script names\nhelp: {}\nhelp: a package is named as in `[dependencies]`; the typed handles come from there: `{name} = {{ path = \"..\" }}`",
        known(dependencies)
    )]
    NotADependency {
        /// The package whose script this is.
        package: String,
        /// The name that was given.
        name: String,
        /// The ifunc packages among its dependencies.
        dependencies: Vec<String>,
    },
    /// An ifunc package without a folder to build in.
    #[error(
        "package `{package}` takes `{name}` from a registry or from git; images are built of packages that lie in a folder\nhelp: have a copy of it in the repository: `{name} = {{ path = \"..\" }}`, or `[patch]` in the workspace's Cargo.toml and `path` here"
    )]
    NotAPath {
        /// The package whose script this is.
        package: String,
        /// The dependency.
        name: String,
    },
    /// A dependency that holds no ifuncs.
    #[error(
        "`{name}` is not an ifunc package: {reason}\nhelp: an ifunc package has a library, depends on `ifunc`, and does not depend on `ifunc-rt`"
    )]
    NotAnIfuncPackage {
        /// The dependency.
        name: String,
        /// The reason.
        reason: String,
    },
    /// There is nothing to build.
    #[error(
        "package `{package}` depends on no ifunc package, and its build script names no C file\nhelp: in its Cargo.toml: `NAME-ifuncs = {{ path = \"..\" }}` under `[dependencies]`; or in build.rs: `.c_file(\"c/NAME.c\")`"
    )]
    Nothing {
        /// The package whose script this is.
        package: String,
    },
    /// Two packages, or a package and a C file, have an ifunc of one name.
    #[error(
        "two ifuncs are named `{name}`: one in `{}`, one in `{}`\nhelp: write `#[ifunc(name = \"{name}_2\")]` on one of them; in C, give the functions `{name}_*` another prefix", first.display(), second.display()
    )]
    DuplicateName {
        /// The name.
        name: String,
        /// The manifest or C file of the first.
        first: PathBuf,
        /// The manifest or C file of the second.
        second: PathBuf,
    },
    /// A build failed.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ScriptError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

fn known(dependencies: &[String]) -> String {
    match dependencies {
        [] => "it depends on no ifunc package yet".into(),
        names => {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("the ifunc packages that it depends on are: {}", names.join(", "))
        }
    }
}
