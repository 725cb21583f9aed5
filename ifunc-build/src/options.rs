//! What a build is asked for.

use std::path::PathBuf;

/// Whether diagnostics of the compiler are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Never: for files and tests.
    #[default]
    Never,
    /// Always: the caller found that it writes to a terminal.
    Always,
}

/// What [`build_packages`](crate::build_packages) builds, and how.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Where `cargo` is run; the current directory if `None`.
    pub current_dir: Option<PathBuf>,
    /// A `Cargo.toml` other than the nearest.
    pub manifest_path: Option<PathBuf>,
    /// Names of packages. Empty: every ifunc package of the workspace. A package that is named and has no ifunc is
    /// an error; one that is not named is passed over.
    pub packages: Vec<String>,
    /// Cargo profile that is built on. The library lands in the folder of this name; `dev` lands in `debug`, as
    /// cargo does it.
    pub profile: String,
    /// Features of the packages.
    pub features: Vec<String>,
    /// All features of the packages.
    pub all_features: bool,
    /// Without the default features.
    pub no_default_features: bool,
    /// Where everything lands instead of `<workspace target directory>/ifunc`.
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

/// How [`build_c`](crate::build_c) builds.
#[derive(Clone, Debug)]
pub struct COptions {
    /// Name of the folder below the target directory.
    pub profile: String,
    /// Where libraries land instead of `<workspace target directory>/ifunc`, or `./target/ifunc` where there is no
    /// workspace.
    pub target_dir: Option<PathBuf>,
    /// More arguments for the compiler: `-I`, `-D`, `-march`. They stand behind our own.
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
            profile: "release".into(),
            target_dir: None,
            cflags: Vec::new(),
            link_args: Vec::new(),
            verbose: false,
            color: Color::Never,
        }
    }
}
