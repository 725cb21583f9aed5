//! What the command line says.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Build, inspect, run and start projects of injected functions
#[derive(Debug, Parser)]
#[command(name = "cargo ifunc", bin_name = "cargo ifunc", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Global {
    /// Say more: the command lines that are run
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Say nothing but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Whether to colour [default: CARGO_TERM_COLOR, or auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<When>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build the ifunc packages of this workspace, or C files
    Build(BuildArgs),
    /// Show what an ifunc library or an image holds
    Inspect(InspectArgs),
    /// Build an example or a project, start its target and its source, and show both
    Run(RunArgs),
    /// Start a project: an ifunc package and a host package
    New(NewArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each ifunc becomes target/ifunc/<profile>/NAME.so: the library that a source opens, which holds the image, the part \
that travels. Without PATH and -p, every ifunc package of the workspace is built.")]
pub(crate) struct BuildArgs {
    /// C files to build instead of packages: one ifunc for each `X_main` in them
    #[arg(value_name = "PATH.c", conflicts_with_all = ["package", "example", "manifest_path", "features", "all_features", "no_default_features"])]
    pub(crate) files: Vec<PathBuf>,
    /// Package to build (may be given several times)
    #[arg(short, long, value_name = "PKG")]
    pub(crate) package: Vec<String>,
    /// Example to build instead of the libraries (may be given several times)
    #[arg(long, value_name = "EXAMPLE")]
    pub(crate) example: Vec<String>,
    /// CPUs to build for, recorded in the image and checked by the target
    #[arg(long, value_name = "LEVEL", default_value = "x86-64-v1")]
    pub(crate) cpu: CpuLevel,
    /// Arguments for the C compiler, separated by blanks, such as --cflags='-Iinclude -DN=4' (may be given several times)
    #[arg(
        long = "cflags",
        value_name = "FLAGS",
        allow_hyphen_values = true,
        requires = "files"
    )]
    pub(crate) cflags: Vec<String>,
    /// One argument for the C compiler, as it is, such as --cflag='-DTEXT=\"two words\"'; behind those of --cflags (may be given several times)
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, requires = "files")]
    pub(crate) cflag: Vec<String>,
    /// Shared library that the ifuncs need on the target, such as libz.so.1 (may be given several times)
    #[arg(long, value_name = "SONAME", requires = "files")]
    pub(crate) needed: Vec<String>,
    /// Argument for the link of the source's library, such as -lz (may be given several times)
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, requires = "files")]
    pub(crate) link_arg: Vec<String>,
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Cargo profile to build on
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    pub(crate) profile: String,
    /// Build on the release profile, which is the default
    #[arg(long, conflicts_with = "profile")]
    pub(crate) release: bool,
    /// Directory for everything built, instead of target/ifunc
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: Option<PathBuf>,
    /// What is said on standard output
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(crate) message_format: MessageFormat,
}

/// A level of the x86-64 psABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuLevel {
    /// Every x86-64 CPU
    #[value(name = "x86-64-v1", alias = "x86-64")]
    V1,
    /// SSE4.2, POPCNT
    #[value(name = "x86-64-v2")]
    V2,
    /// AVX2, BMI, FMA
    #[value(name = "x86-64-v3")]
    V3,
    /// AVX-512
    #[value(name = "x86-64-v4")]
    V4,
}

impl From<CpuLevel> for ifunc_build::Cpu {
    fn from(level: CpuLevel) -> Self {
        match level {
            CpuLevel::V1 => Self::V1,
            CpuLevel::V2 => Self::V2,
            CpuLevel::V3 => Self::V3,
            CpuLevel::V4 => Self::V4,
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CargoArgs {
    /// Path to Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Features of the packages, separated by blanks or commas
    #[arg(short = 'F', long, value_name = "FEATURES")]
    pub(crate) features: Vec<String>,
    /// All features
    #[arg(long)]
    pub(crate) all_features: bool,
    /// Without the default features
    #[arg(long)]
    pub(crate) no_default_features: bool,
    /// Require that Cargo.lock stays as it is
    #[arg(long)]
    pub(crate) locked: bool,
    /// Without the network
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// For people, on standard error
    Human,
    /// One JSON object per ifunc on standard output
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
--json prints one object for a file that holds one ifunc, an array of objects for one that holds several.")]
pub(crate) struct InspectArgs {
    /// An ifunc library (.so), or a bare image
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Target and source in one process
    Loopback,
    /// Two processes over shared memory
    Shm,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Builds the images of the host package's ifunc packages and the host package itself (both on the release profile), \
starts its `target`, waits for the line `ifunc: ready ADDRESS`, starts its `source`, and stops the target when the \
source is done. Over loopback its `both` is started instead. All of them get ARGS, IFUNC_ADDR (where the target \
listens) and IFUNC_LIB_DIR (where the images are). The exit code is the first that is not zero.")]
pub(crate) struct RunArgs {
    /// An example (folder below examples/) or a host package [default: the workspace's only one]
    pub(crate) name: Option<String>,
    /// How frames travel
    #[arg(long, env = "IFUNC_TRANSPORT", default_value = "shm", hide_env_values = true)]
    pub(crate) transport: Transport,
    /// Stop target and source after so long; building is not counted
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) timeout: u64,
    /// Path to Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Require that Cargo.lock stays as it is
    #[arg(long)]
    pub(crate) locked: bool,
    /// Without the network
    #[arg(long)]
    pub(crate) offline: bool,
    /// Arguments for target and source
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lang {
    /// Ifuncs in Rust
    Rust,
    /// Ifuncs in C
    C,
    /// Some in Rust, some in C
    Mixed,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --path and --git the project depends on the checkout that this command was built from, as long as it is there.")]
pub(crate) struct NewArgs {
    /// Directory to create; its last part names the project
    #[arg(value_name = "NAME")]
    pub(crate) path: PathBuf,
    /// Language of the ifuncs
    #[arg(long, default_value = "rust")]
    pub(crate) lang: Lang,
    /// Depend on the checkout of ifunc at this path
    #[arg(long = "path", value_name = "CHECKOUT", conflicts_with = "git")]
    pub(crate) checkout: Option<PathBuf>,
    /// Depend on the git repository of ifunc at this URL
    #[arg(long, value_name = "URL")]
    pub(crate) git: Option<String>,
}
