//! What stops a build.

use std::path::PathBuf;

use ifunc_link::{InputError, LinkError};

/// What stops a build. The text says what was being done, what was found and, in lines that begin with `help: `,
/// what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `cargo metadata` failed.
    #[error("`cargo metadata` failed: {0}")]
    Metadata(String),
    /// No package of this name is in the workspace.
    #[error("package `{name}` is not a member of this workspace\nhelp: the ifunc packages are: {known}")]
    UnknownPackage {
        /// What was asked for.
        name: String,
        /// The ifunc packages there are.
        known: String,
    },
    /// A feature that no package has.
    #[error("no package that is built has the feature `{feature}`\nhelp: {help}")]
    UnknownFeature {
        /// The feature.
        feature: String,
        /// Which packages have which.
        help: String,
    },
    /// No example of this name, or several.
    #[error("there is not one example `{name}`\nhelp: {help}")]
    UnknownExample {
        /// What was asked for.
        name: String,
        /// The examples there are.
        help: String,
    },
    /// One package is wanted.
    #[error("there is not one ifunc package here, but {}\nhelp: say which with `-p`{}", known.len(), known.iter().map(|name| format!(" `{name}`")).collect::<Vec<_>>().join(","))]
    NotOnePackage {
        /// The ifunc packages there are.
        known: Vec<String>,
    },
    /// A package that was named has no ifuncs.
    #[error("package `{package}` has no ifunc\nhelp: {help}")]
    NoIfuncs {
        /// The package.
        package: String,
        /// What to do.
        help: String,
    },
    /// The manifest says something that we do not understand.
    #[error("`[package.metadata.ifunc]` of package `{package}`: {reason}")]
    Manifest {
        /// The package.
        package: String,
        /// What is wrong.
        reason: String,
    },
    /// The compiler refused the package; its diagnostics went to [`Progress`](crate::Progress).
    #[error("could not compile ifunc package `{package}`{}", helps.iter().map(|h| format!("\nhelp: {h}")).collect::<String>())]
    Compile {
        /// The package.
        package: String,
        /// What to do about what the compiler said, as far as we know it.
        helps: Vec<String>,
    },
    /// The C compiler refused.
    #[error("could not compile `{}` with `{compiler}`\n{stderr}", file.display())]
    CompileC {
        /// The file.
        file: PathBuf,
        /// The compiler.
        compiler: String,
        /// What it wrote.
        stderr: String,
    },
    /// C code for CPU features that an image cannot state.
    #[error(
        "{flags} lets the compiler use what no level of x86-64 has ({macros}), so that no target could tell that it lacks them\nhelp: an image states a level, `-march={nearest}` is the nearest; code for more goes into functions with `__attribute__((target(..)))`, called where `__builtin_cpu_init()` and then `__builtin_cpu_supports(..)` say so"
    )]
    CpuFeatures {
        /// The flags that ask for them, or the compiler.
        flags: String,
        /// The macros that speak of them.
        macros: String,
        /// The nearest level: that of the other features.
        nearest: &'static str,
    },
    /// What was named as a needed shared library cannot be one.
    #[error(
        "`{soname}` cannot name a shared library that a target needs: {reason}\nhelp: give its soname, such as `libz.so.1`; `readelf -d` prints that of a library"
    )]
    Needed {
        /// What was named.
        soname: String,
        /// Why not.
        reason: &'static str,
    },
    /// A C file holds no ifunc, or half of one.
    #[error("`{}`: {reason}\nhelp: {help}", file.display())]
    CIfunc {
        /// The file.
        file: PathBuf,
        /// What is missing or too much.
        reason: String,
        /// What to do.
        help: String,
    },
    /// Two ifuncs of one name.
    #[error("two ifuncs are named `{name}`: one in {first}, one in {second}\nhelp: {help}")]
    DuplicateName {
        /// The name.
        name: String,
        /// Where the first is.
        first: String,
        /// Where the second is.
        second: String,
        /// What to rename.
        help: String,
    },
    /// A record in `.ifunc.meta` cannot be read.
    #[error("package `{package}`: {source}")]
    Meta {
        /// The package.
        package: String,
        /// Why.
        source: ifunc_abi::meta::MetaError,
    },
    /// Two crates declare one import differently.
    #[error(
        "package `{package}`: the import `{symbol}` is declared twice, as\n  {first}\n  {second}\nhelp: make both declarations the same, or declare it in one crate that both use"
    )]
    ImportConflict {
        /// The package that was built.
        package: String,
        /// The import.
        symbol: String,
        /// One signature.
        first: String,
        /// The other.
        second: String,
    },
    /// An object or archive cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The linker refused; every reason is named, for every ifunc of the package or file.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Link {
        /// One for each ifunc that was refused; never empty.
        errors: Vec<LinkError>,
    },
    /// `cc -shared` failed.
    #[error("could not link the library `{library}` with `{compiler}`\n{stderr}")]
    LinkShared {
        /// The library.
        library: String,
        /// The compiler.
        compiler: String,
        /// What it wrote.
        stderr: String,
    },
    /// A program cannot be started.
    #[error("cannot run `{program}`: {source}\nhelp: {help}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
        /// What to do.
        help: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
