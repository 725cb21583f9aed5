//! The options of a build.

use std::path::PathBuf;

use crate::{Cpu, Slice};

/// Whether diagnostics of the compiler are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Never: for files and tests.
    #[default]
    Never,
    /// Always: the caller writes to a terminal.
    Always,
}

/// The compiler's optimisation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptLevel {
    /// `-O0`.
    O0,
    /// `-O1`.
    O1,
    /// `-O2`.
    O2,
    /// `-O3`.
    O3,
    /// `-Os`.
    Os,
}

impl OptLevel {
    /// The value of `-Copt-level=`.
    #[must_use]
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self::O0 => "0",
            Self::O1 => "1",
            Self::O2 => "2",
            Self::O3 => "3",
            Self::Os => "s",
        }
    }

    /// The value in a profile: a number, or a string in quotes.
    #[must_use]
    pub(crate) const fn setting(self) -> &'static str {
        match self {
            Self::Os => "\"s\"",
            other => other.flag(),
        }
    }
}

/// The options of [`build_packages`](crate::build_packages).
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The directory that `cargo` runs in; the current directory if `None`.
    pub current_dir: Option<PathBuf>,
    /// A `Cargo.toml` other than the nearest.
    pub manifest_path: Option<PathBuf>,
    /// Names of packages. Empty: every ifunc package of the workspace. A named package without an ifunc is an error;
    /// others without an ifunc are skipped.
    pub packages: Vec<String>,
    /// The cargo profile. Libraries go to the folder of this name; those of `dev` go to `debug`, as in cargo.
    pub profile: String,
    /// Examples of the packages that hold ifuncs, built instead of the libraries.
    pub examples: Vec<String>,
    /// The target triple that is compiled for, such as `aarch64-unknown-linux-gnu`, and the libraries then go to a folder of its
    /// name, as in cargo; that of the compiler if `None`.
    pub triple: Option<String>,
    /// The least CPU that Rust and C code is built for: `[package.metadata.ifunc] cpu` of a package and its C
    /// flags may raise it. Code for another architecture is built for the least CPU of that.
    pub cpu: Cpu,
    /// More machines: libraries have a slice for each, beside the one of `triple` and `cpu`. `[package.metadata.ifunc] cpu` of a
    /// package may add to them.
    pub slices: Vec<Slice>,
    /// Optimisation of the Rust code, instead of the profile's.
    pub opt_level: Option<OptLevel>,
    /// Link-time optimisation of the Rust code over all crates. On except in tests of the builder.
    pub lto: bool,
    /// Features of the packages.
    pub features: Vec<String>,
    /// All features of the packages.
    pub all_features: bool,
    /// Without the default features.
    pub no_default_features: bool,
    /// The target directory; `<workspace target directory>/ifunc` if `None`.
    pub target_dir: Option<PathBuf>,
    /// `--locked`.
    pub locked: bool,
    /// `--offline`.
    pub offline: bool,
    /// `--verbose` for cargo; command lines are reported to [`Progress::command`](crate::Progress::command).
    pub verbose: bool,
    /// Colour of diagnostics.
    pub color: Color,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            current_dir: None,
            manifest_path: None,
            packages: Vec::new(),
            profile: "release".into(),
            examples: Vec::new(),
            triple: None,
            cpu: Cpu::V1,
            slices: Vec::new(),
            opt_level: None,
            lto: true,
            features: Vec::new(),
            all_features: false,
            no_default_features: false,
            target_dir: None,
            locked: false,
            offline: false,
            verbose: false,
            color: Color::Never,
        }
    }
}

/// The options of [`build_c`](crate::build_c).
#[derive(Clone, Debug)]
pub struct COptions {
    /// The directory that the compiler runs in, where relative paths in `cflags` and `link_args` begin; the current
    /// directory if `None`. Paths of files always begin at the current directory.
    pub current_dir: Option<PathBuf>,
    /// Name of the folder below the target directory.
    pub profile: String,
    /// The folder of the libraries; if `None`, `<workspace target directory>/ifunc`, or `./target/ifunc` outside a
    /// workspace.
    pub target_dir: Option<PathBuf>,
    /// The target triple that is compiled for, and the libraries then go to a folder of its name; that of the compiler if
    /// `None`.
    pub triple: Option<String>,
    /// The C compiler and its first arguments, separated by blanks; `$CC` or `cc` if `None`. With a
    /// [`triple`](Self::triple) `$CC_TRIPLE`, or the one that GNU has for it, comes before.
    pub compiler: Option<String>,
    /// The CPU that the code is built for; `cflags` may raise it. Code for another architecture is built for the least CPU of that.
    pub cpu: Cpu,
    /// More machines: libraries have a slice for each, beside the one of `triple` and `cpu`.
    pub slices: Vec<Slice>,
    /// Sonames of shared libraries that the ifuncs need on the target, such as `libz.so.1`.
    pub needed: Vec<String>,
    /// More arguments for the compiler: `-I`, `-D`, `-march`. They follow the builder's own.
    pub cflags: Vec<String>,
    /// More arguments for the link of the source's library: `-lz` for a `payload_init` that compresses.
    pub link_args: Vec<String>,
    /// Command lines are reported to [`Progress::command`](crate::Progress::command).
    pub verbose: bool,
    /// Colour of diagnostics.
    pub color: Color,
}

impl Default for COptions {
    fn default() -> Self {
        Self {
            current_dir: None,
            profile: "release".into(),
            target_dir: None,
            compiler: None,
            triple: None,
            cpu: Cpu::V1,
            slices: Vec::new(),
            needed: Vec::new(),
            cflags: Vec::new(),
            link_args: Vec::new(),
            verbose: false,
            color: Color::Never,
        }
    }
}
