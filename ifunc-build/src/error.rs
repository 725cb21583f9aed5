//! Errors of a build.

use std::path::PathBuf;

use ifunc_link::{InputError, LinkError};

/// Why a build failed. The text states the action, the cause and, in lines that begin with `help: `, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `cargo metadata` failed.
    #[error("`cargo metadata` failed: {0}")]
    Metadata(String),
    /// The images of an ifunc cannot be slices of one library.
    #[error("the slices of `{name}` do not belong together: {why}")]
    Slices {
        /// The ifunc.
        name: String,
        /// Which slice, and what is wrong with it.
        why: String,
    },
    /// No package of this name is in the workspace.
    #[error("package `{name}` is not a member of this workspace\nhelp: the ifunc packages are: {known}")]
    UnknownPackage {
        /// The name that was given.
        name: String,
        /// The ifunc packages of the workspace.
        known: String,
    },
    /// A member of the workspace that is no ifunc package.
    #[error("package `{name}` holds no ifuncs: {why}\nhelp: the ifunc packages are: {known}")]
    NotAnIfuncPackage {
        /// The name that was given.
        name: String,
        /// What makes it another package.
        why: &'static str,
        /// The ifunc packages of the workspace.
        known: String,
    },
    /// A feature that no package has.
    #[error("no package that is built has the feature `{feature}`\nhelp: {help}")]
    UnknownFeature {
        /// The feature.
        feature: String,
        /// The features of each package.
        help: String,
    },
    /// No example of this name, or several.
    #[error("example `{name}` not found or ambiguous\nhelp: {help}")]
    UnknownExample {
        /// The name that was given.
        name: String,
        /// The examples of the packages.
        help: String,
    },
    /// The command needs one package, and there are none or several.
    #[error("expected one ifunc package, found {}\nhelp: choose one with `-p`{}", known.len(), known.iter().map(|name| format!(" `{name}`")).collect::<Vec<_>>().join(","))]
    NotOnePackage {
        /// The ifunc packages of the workspace.
        known: Vec<String>,
    },
    /// A target triple that no image can be for.
    #[error(
        "no image can be built for `{triple}`\nhelp: images are for x86-64 and AArch64 Linux: `x86_64-unknown-linux-gnu`, `aarch64-unknown-linux-gnu`"
    )]
    UnknownTriple {
        /// The triple.
        triple: String,
    },
    /// The C compiler compiles for another architecture than that of the triple.
    #[error(
        "`{compiler}` compiles for `{machine}`, and images for `{triple}` are to be built\nhelp: name a compiler for it in the environment variable `{variable}`; `{default}` is in the package `gcc-{}` of Debian and Ubuntu", default.trim_end_matches("-gcc")
    )]
    OtherMachine {
        /// The compiler.
        compiler: String,
        /// The machine that it states.
        machine: String,
        /// The triple.
        triple: String,
        /// The variable that would name another compiler.
        variable: String,
        /// GNU's compiler for the triple.
        default: String,
    },
    /// A package that was named has no ifuncs.
    #[error("package `{package}` has no ifunc\nhelp: {help}")]
    NoIfuncs {
        /// The package.
        package: String,
        /// The remedy.
        help: String,
    },
    /// The manifest holds an invalid setting.
    #[error("`[package.metadata.ifunc]` of package `{package}`: {reason}")]
    Manifest {
        /// The package.
        package: String,
        /// The defect.
        reason: String,
    },
    /// The compiler refused the package; its diagnostics went to [`Progress`](crate::Progress).
    #[error("could not compile ifunc package `{package}`{}", helps.iter().map(|h| format!("\nhelp: {h}")).collect::<String>())]
    Compile {
        /// The package.
        package: String,
        /// Remedies for the compiler's errors, as far as they are known.
        helps: Vec<String>,
    },
    /// The C compiler refused.
    #[error("could not compile `{}` with `{compiler}`\n{stderr}", file.display())]
    CompileC {
        /// The file.
        file: PathBuf,
        /// The compiler.
        compiler: String,
        /// Its standard error.
        stderr: String,
    },
    /// C code for CPU features that an image cannot state.
    #[error(
        "{flags} enables CPU features {of} ({macros}), so that no target could detect that it lacks them\nhelp: `-march={nearest}` is the nearest that an image can state; code for more goes into functions with `__attribute__((target(..)))`, called where {check}"
    )]
    CpuFeatures {
        /// The flags that enable the features, or the compiler.
        flags: String,
        /// The macros that it predefines for them.
        macros: String,
        /// What of the architecture an image can state.
        of: &'static str,
        /// The nearest that it can state: all other features.
        nearest: String,
        /// How code finds out what the CPU has.
        check: &'static str,
    },
    /// A CPU has features that no option of C compilers asks for.
    #[error(
        "`--cpu {cpu}` has {features}, which C compilers know only as a part of a version\nhelp: `--cpu {version}` is the least version with it, `--cpu {without}` is without it; Rust code alone builds for `{cpu}`"
    )]
    FeaturesOfC {
        /// The CPU.
        cpu: crate::Cpu,
        /// Its features that have no name in C compilers.
        features: String,
        /// The least version that has them, and the other features.
        version: crate::Cpu,
        /// The other features alone.
        without: crate::Cpu,
    },
    /// A setting of needed shared libraries is not a soname.
    #[error(
        "`{soname}` cannot name a shared library that a target needs: {reason}\nhelp: give its soname, such as `libz.so.1`; `readelf -d` prints that of a library"
    )]
    Needed {
        /// The setting.
        soname: String,
        /// The reason.
        reason: &'static str,
    },
    /// A C file holds no ifunc, or half of one.
    #[error("`{}`: {reason}\nhelp: {help}", file.display())]
    CIfunc {
        /// The file.
        file: PathBuf,
        /// What is missing or superfluous.
        reason: String,
        /// The remedy.
        help: String,
    },
    /// Two ifuncs of one name.
    #[error("two ifuncs are named `{name}`: one in {first}, one in {second}\nhelp: {help}")]
    DuplicateName {
        /// The name.
        name: String,
        /// Location of the first.
        first: String,
        /// Location of the second.
        second: String,
        /// Ways to rename one of them.
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
        /// Its standard error.
        stderr: String,
    },
    /// A program cannot be started.
    #[error("cannot run `{program}`: {source}\nhelp: {help}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
        /// The remedy.
        help: String,
    },
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
