//! The options of a build.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Whether diagnostics of the compiler are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Never: for files and tests.
    #[default]
    Never,
    /// Always: the caller writes to a terminal.
    Always,
}

/// The CPUs that code is built for: a level of the x86-64 psABI, recorded in the image and checked when a target
/// installs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cpu {
    /// x86-64-v1: every x86-64 CPU.
    #[default]
    V1,
    /// x86-64-v2: SSE4.2, POPCNT.
    V2,
    /// x86-64-v3: AVX2, BMI, FMA.
    V3,
    /// x86-64-v4: AVX-512.
    V4,
}

impl Cpu {
    /// Every level, the lowest first.
    pub const ALL: [Self; 4] = [Self::V1, Self::V2, Self::V3, Self::V4];

    /// The level's name in `--cpu` and manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "x86-64-v1",
            Self::V2 => "x86-64-v2",
            Self::V3 => "x86-64-v3",
            Self::V4 => "x86-64-v4",
        }
    }

    /// The level of a name; `x86-64` is v1, as in compilers.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "x86-64" => Some(Self::V1),
            _ => Self::ALL.into_iter().find(|level| level.name() == name),
        }
    }

    /// These levels and that of the first slice, each once and the lowest first. Those below `least` are left out.
    #[must_use]
    pub(crate) fn of_slices(least: Self, more: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let more: BTreeSet<Self> = more.into_iter().filter(|level| *level > least).collect();
        std::iter::once(least).chain(more).collect()
    }

    /// The compilers' name: v1 has no number there.
    #[must_use]
    pub(crate) const fn of_compilers(self) -> &'static str {
        match self {
            Self::V1 => "x86-64",
            other => other.name(),
        }
    }

    /// The feature bits of an image: bit 0 is v2, bit 1 v3, bit 2 v4, each with those below it.
    #[must_use]
    pub const fn features(self) -> u64 {
        (1 << self as u64) - 1
    }
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
    /// The least CPU level that Rust and C code is built for: `[package.metadata.ifunc] cpu` of a package and its C
    /// flags may raise it.
    pub cpu: Cpu,
    /// More levels: libraries have a slice for each, beside the one of `cpu`. `[package.metadata.ifunc] cpu` of a package may add
    /// to them. Levels below the least are left out.
    pub slices: Vec<Cpu>,
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

impl BuildOptions {
    /// The same for a slice of this level.
    pub(crate) fn at(&self, cpu: Cpu) -> Self {
        Self {
            cpu,
            slices: Vec::new(),
            ..self.clone()
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
    /// The C compiler and its first arguments, separated by blanks; `$CC` or `cc` if `None`.
    pub compiler: Option<String>,
    /// The CPU level that the code is built for; `cflags` may raise it.
    pub cpu: Cpu,
    /// More levels: libraries have a slice for each, beside the one of `cpu`.
    pub slices: Vec<Cpu>,
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

impl COptions {
    /// The options of each slice, the first one first.
    pub(crate) fn of_slices(&self) -> Vec<Self> {
        let levels = Cpu::of_slices(self.cpu, self.slices.iter().copied());
        let at = |cpu| Self {
            cpu,
            slices: Vec::new(),
            ..self.clone()
        };
        levels.into_iter().map(at).collect()
    }
}
