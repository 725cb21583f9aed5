//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::Failure;
use crate::platforms::{self, LibraryPlatforms};

/// Build, inspect and run injected functions, and create projects of them
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
    /// Also print the command lines that are run
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Print errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output [default: CARGO_TERM_COLOR, or auto]
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
    /// List every reason why packages, C files or objects would be refused, without building
    Check(CheckArgs),
    /// Build the images of ifunc packages and run their tests with them
    Test(TestArgs),
    /// Show the contents of an ifunc library or an image, or of the images in a program
    Inspect(InspectArgs),
    /// Make a key that signs images
    Keygen(KeygenArgs),
    /// Sign images: the signatures stand beside the library
    Sign(SignArgs),
    /// Check the signatures of images
    Verify(VerifyArgs),
    /// Show what the attributes expand to
    Expand(ExpandArgs),
    /// Build an example or a project, then run its target and its source and show their output
    Run(RunArgs),
    /// Call an ifunc on a running target, with payload and answer as JSON
    Call(CallArgs),
    /// Show the activity of a running target: its ifuncs, its sources, counts and rates
    Top(TopArgs),
    /// Create a project: an ifunc package and a host package
    New(NewArgs),
    /// Remove what this command has built
    Clean(CleanArgs),
    /// Check what this machine has and lacks, and print the command that fixes each problem
    Doctor(DoctorArgs),
    /// Write the manual pages of this command
    #[command(hide = true)]
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each ifunc becomes target/ifunc/<profile>/NAME.so: the library that a source opens, which contains the image, the part \
that travels; with --target, target/ifunc/<triple>/<profile>/NAME.so. Without PATH and -p, every ifunc package of the workspace is built.

An example is built as a library even if the manifest does not declare it as one. It needs no `main`, but cargo's own \
`cargo test` and `cargo build --examples` require one, unless the manifest has `[[example]] name = \"NAME\" \
crate-type = [\"lib\"]`.

Examples:
  cargo ifunc build                              # every ifunc package
  cargo ifunc build -p hello-ifuncs --cpu x86-64-v3
  cargo ifunc build --cpu x86-64-v1,x86-64-v3    # two slices: every CPU, and those with AVX2
  cargo ifunc build --example greet              # the ifuncs of hello-ifuncs/examples/greet.rs
  cargo ifunc build --message-format json        # where each library is, for programs
  cargo ifunc build greet.c --cflags='-O3 -DLOUD'")]
pub(crate) struct BuildArgs {
    /// C or C++ files to build instead of packages: one ifunc per `X_main`
    #[arg(value_name = "PATH.c", conflicts_with_all = ["package", "example", "manifest_path", "features", "all_features", "no_default_features"])]
    pub(crate) files: Vec<PathBuf>,
    /// Package to build (repeatable)
    #[arg(short, long, value_name = "PKG")]
    pub(crate) package: Vec<String>,
    /// Example to build instead of the libraries (repeatable)
    #[arg(long, value_name = "EXAMPLE")]
    pub(crate) example: Vec<String>,
    #[command(flatten)]
    pub(crate) machines: MachinesArgs,
    /// Arguments for the C compiler, separated by blanks, such as --cflags='-Iinclude -DN=4' (repeatable)
    #[arg(
        long = "cflags",
        value_name = "FLAGS",
        allow_hyphen_values = true,
        requires = "files"
    )]
    pub(crate) cflags: Vec<String>,
    /// One argument for the C compiler, taken literally, such as --cflag='-DTEXT="two words"'; it follows
    /// those of --cflags (repeatable)
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, requires = "files")]
    pub(crate) cflag: Vec<String>,
    /// Shared library that the ifuncs need on the target, such as libz.so.1 (repeatable)
    #[arg(long, value_name = "SONAME", requires = "files")]
    pub(crate) needed: Vec<String>,
    /// Linker argument for the source's library, such as -lz (repeatable)
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, requires = "files")]
    pub(crate) link_arg: Vec<String>,
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Cargo profile that the image build inherits
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    pub(crate) profile: String,
    /// Inherit the release profile, which is the default
    #[arg(long, conflicts_with = "profile")]
    pub(crate) release: bool,
    /// Directory for all build output, instead of target/ifunc
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: Option<PathBuf>,
    /// Format of the messages
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub(crate) message_format: MessageFormat,
}

/// The machines that images are built for.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MachinesArgs {
    /// Target triple to build for, such as aarch64-unknown-linux-gnu; the libraries go to a folder of its name. With several, there are
    /// libraries for each, and all of them hold the slices of all (repeatable)
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// CPU to build for: a level of x86-64, such as x86-64-v3, or a version of AArch64 with features, such as
    /// armv8.1-a+dotprod; the image records it and the target checks it. With several of one architecture, separated by commas or
    /// repeated, libraries hold a slice for each, and each target is sent the one that it runs best
    #[arg(long, value_name = "CPU", value_delimiter = ',', value_parser = cpu)]
    cpu: Vec<ifunc_build::Cpu>,
}

impl MachinesArgs {
    /// The libraries that are built.
    pub(crate) fn libraries(&self) -> Result<Vec<LibraryPlatforms>, Failure> {
        let triples: Vec<Option<String>> = match self.target.is_empty() {
            true => vec![None],
            false => self.target.iter().cloned().map(Some).collect(),
        };
        platforms::libraries(&triples, &self.cpu)
    }
}

/// The machine that code is checked for.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MachineArgs {
    /// Target triple to check for, such as aarch64-unknown-linux-gnu
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// CPU to check for: a level of x86-64, such as x86-64-v3, or a version of AArch64 with features, such as armv8.1-a+dotprod
    #[arg(long, value_name = "CPU", value_parser = cpu)]
    cpu: Option<ifunc_build::Cpu>,
}

impl MachineArgs {
    /// The CPU: of no use for a triple of another architecture, for which it is an error.
    pub(crate) fn cpu(&self) -> Result<ifunc_build::Cpu, Failure> {
        let libraries = platforms::libraries(std::slice::from_ref(&self.target), self.cpu.as_slice())?;
        Ok(libraries
            .first()
            .map_or_else(Default::default, |library| library.cpu))
    }
}

fn cpu(name: &str) -> Result<ifunc_build::Cpu, String> {
    ifunc_build::Cpu::from_name(name).ok_or_else(ifunc_build::Cpu::known)
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CargoArgs {
    /// Path to Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Features of the packages, separated by blanks or commas
    #[arg(short = 'F', long, value_name = "FEATURES")]
    pub(crate) features: Vec<String>,
    /// Enable all features
    #[arg(long)]
    pub(crate) all_features: bool,
    /// Disable the default features
    #[arg(long)]
    pub(crate) no_default_features: bool,
    /// Require that Cargo.lock is up to date
    #[arg(long)]
    pub(crate) locked: bool,
    /// Do not access the network
    #[arg(long)]
    pub(crate) offline: bool,
}

impl CargoArgs {
    /// A build of all ifunc packages with these arguments.
    pub(crate) fn options(&self) -> ifunc_build::BuildOptions {
        ifunc_build::BuildOptions {
            manifest_path: self.manifest_path.clone(),
            features: self.features.clone(),
            all_features: self.all_features,
            no_default_features: self.no_default_features,
            locked: self.locked,
            offline: self.offline,
            ..ifunc_build::BuildOptions::default()
        }
    }

    /// Passes these arguments on to a `cargo` that this command starts.
    pub(crate) fn pass_to(&self, command: &mut std::process::Command) {
        if let Some(path) = &self.manifest_path {
            command.arg("--manifest-path").arg(path);
        }
        let flags = [
            (self.locked, "--locked"),
            (self.offline, "--offline"),
            (self.all_features, "--all-features"),
            (self.no_default_features, "--no-default-features"),
        ];
        command.args(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
        for features in &self.features {
            command.args(["--features", features]);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// Text on standard error
    Human,
    /// One JSON object per ifunc on standard output
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each ifunc package is compiled as in an image build, without code generation; C files and objects are linked in \
memory. Errors that only the linker finds in Rust code (undeclared symbols, thread-locals, constructors, CPU features) take a \
build: --full does one and writes no library. Objects (.o) and archives (.a) given by path are linked for each `X_main`.

With --message-format json, cargo's messages for all packages of the workspace go to standard output, \
as rust-analyzer expects: \"rust-analyzer.check.overrideCommand\": \
[\"cargo\", \"ifunc\", \"check\", \"--message-format=json\"].

Examples:
  cargo ifunc check                              # every ifunc package
  cargo ifunc check --full -p hello-ifuncs       # also what only the linker finds
  cargo ifunc check greet.c
  cargo ifunc check --message-format=json        # for an editor")]
pub(crate) struct CheckArgs {
    /// C or C++ files, objects or archives to check instead of packages
    #[arg(value_name = "PATH", conflicts_with_all = ["package", "full", "message_format", "manifest_path", "features", "all_features", "no_default_features"])]
    pub(crate) files: Vec<PathBuf>,
    /// Package to check (repeatable)
    #[arg(short, long, value_name = "PKG")]
    pub(crate) package: Vec<String>,
    /// Compile and link in memory, as a build does
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Arguments for the C compiler, separated by blanks (repeatable)
    #[arg(
        long = "cflags",
        value_name = "FLAGS",
        allow_hyphen_values = true,
        requires = "files"
    )]
    pub(crate) cflags: Vec<String>,
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Directory for cargo's output, instead of target/ifunc
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: Option<PathBuf>,
    /// `human`, or one of cargo's formats, such as `json`
    #[arg(long, value_name = "FORMAT", default_value = "human", value_parser = check_format)]
    pub(crate) message_format: String,
}

fn check_format(text: &str) -> Result<String, String> {
    match text == "human" || text == "json" || text.starts_with("json-") {
        true => Ok(text.to_owned()),
        false => Err("`human`, or one of cargo's formats, which begin with `json`".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Builds the images first and sets IFUNC_LIB_DIR, so that `ifunc_test::run` runs the real images. \
Without -p, tests all ifunc packages, and the host packages with a dev-dependency on `ifunc-test`. With -p, a host package is tested with the images of the packages that it \
depends on.

Examples:
  cargo ifunc test                               # all packages with tests of ifuncs
  cargo ifunc test -p hello-ifuncs -- --nocapture
  cargo ifunc test --profile dev                 # with unoptimised images")]
pub(crate) struct TestArgs {
    /// Package to test (repeatable)
    #[arg(short, long, value_name = "PKG")]
    pub(crate) package: Vec<String>,
    /// Cargo profile that the image build inherits
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Arguments for the tests
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Shows the expansion for programs that depend on the package; with --image, the expansion for images.

Examples:
  cargo ifunc expand                             # everything that the attributes expand to
  cargo ifunc expand add -p hello-ifuncs
  cargo ifunc expand add --image                 # with the C entry points
  cargo ifunc expand --all                       # the whole library")]
pub(crate) struct ExpandArgs {
    /// Function or type to expand [default: all]
    #[arg(value_name = "ITEM")]
    pub(crate) item: Option<String>,
    /// Package to expand [default: the only ifunc package]
    #[arg(short, long, value_name = "PKG")]
    pub(crate) package: Option<String>,
    /// Expand as in an image build
    #[arg(long)]
    pub(crate) image: bool,
    /// Print the whole library, not only the attributes' output
    #[arg(long, conflicts_with = "item")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 1 if something required is missing.

Examples:
  cargo ifunc doctor
  cargo ifunc doctor --json                      # for programs")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Installers use it.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write to
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Of a program, it shows the images that are embedded in it, by `ifunc_rt::include_image!` or otherwise; they have no symbols, so \
--size and --disasm know no names.

--json prints one object for a file with one image, an array of objects for a file with several. `offset` is where a program \
embeds the image.

Examples:
  cargo ifunc inspect target/ifunc/release/add.so
  cargo ifunc inspect --json target/ifunc/release/add.so
  cargo ifunc inspect --size target/ifunc/release/add.so
  cargo ifunc inspect --disasm target/ifunc/release/add.so")]
pub(crate) struct InspectArgs {
    /// An ifunc library (.so), a bare image, or a program that embeds images
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show the size of functions, strings, panic locations and tables, by crate; each byte counts once
    #[arg(long)]
    pub(crate) size: bool,
    /// Disassemble the code, with names for imports and for the library's symbols
    #[arg(long, conflicts_with_all = ["size", "json"])]
    pub(crate) disasm: bool,
    /// With --disasm, show the bytes of each instruction
    #[arg(long, requires = "disasm")]
    pub(crate) bytes: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Writes NAME.key, the secret key, which its owner alone may read (mode 0600), and NAME.pub, the public key, for the \
policies of targets: ifunc_rt::Policy::accept_key, or `file` in the policy file. A key signs images, or proves over \
tls:// who a process is: there, IFUNC_TLS_KEY names the secret key of the process, and IFUNC_TLS_PEERS the public keys of its \
peers. Overwrites nothing.

With --ca the key is that of an authority, and NAME.pem is its certificate, for ten years. With --certificate and --by, NAME.pem \
is a certificate of the new key, which the authority has issued: the policy of a target names the authority once instead of each key, \
and sources know their targets by name. IFUNC_TLS_CERTIFICATE names the certificate of a process, IFUNC_TLS_AUTHORITY that of the \
authority. An authority that you have issues the same, for a key of `openssl genpkey -algorithm ed25519`.

Examples:
  cargo ifunc keygen builds                      # builds.key and builds.pub
  cargo ifunc keygen --ca cluster                # cluster.key, cluster.pub and cluster.pem
  cargo ifunc keygen --by cluster.key --certificate store.example --certificate 10.1.0.7 store")]
pub(crate) struct KeygenArgs {
    /// Name of the key; the files get this name, with `.key`, `.pub` and `.pem`
    #[arg(value_name = "NAME")]
    pub(crate) path: PathBuf,
    /// Make the key of an authority, and its certificate
    #[arg(long, conflicts_with = "certificate")]
    pub(crate) ca: bool,
    /// A name of the process, for its certificate: a DNS name, an IP address or a URI
    #[arg(long, value_name = "DNS", requires = "by")]
    pub(crate) certificate: Vec<String>,
    /// The key of the authority, from `cargo ifunc keygen --ca`
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) by: Option<PathBuf>,
    /// How long the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650), requires = "certificate")]
    pub(crate) days: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Writes NAME.sig beside NAME.so: one line for each image and key. The library and the id of its image stay as they are. \
A source that reads NAME.so sends the signature with the image. A signature is of one build: sign again after each.

With --output, all signatures go to one file: for images that are embedded in a program, with \
ifunc_rt::Source::add_signatures.

Examples:
  cargo ifunc sign --key builds.key target/ifunc/release/add.so
  cargo ifunc sign --key builds.key --output signatures target/ifunc/release/*.so")]
pub(crate) struct SignArgs {
    /// Ifunc libraries (.so) or bare images
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The secret key, from `cargo ifunc keygen`
    #[arg(short, long, value_name = "FILE", env = "IFUNC_KEY", hide_env_values = true)]
    pub(crate) key: PathBuf,
    /// Write all signatures to this file, instead of beside each library
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each image of each library must have a valid signature by one of the keys; without --key, by any key, which is printed. \
The exit code is 1 if one has none.

Examples:
  cargo ifunc verify target/ifunc/release/add.so
  cargo ifunc verify --key builds.pub target/ifunc/release/add.so")]
pub(crate) struct VerifyArgs {
    /// Ifunc libraries (.so) or bare images
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A public key, from `cargo ifunc keygen` (repeatable)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) key: Vec<PathBuf>,
    /// File of the signatures, instead of those beside each library
    #[arg(long, value_name = "FILE")]
    pub(crate) signatures: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Target and source in one process
    Loopback,
    /// Two processes over shared memory
    Shm,
    /// Two processes over TLS, on this host, with a key of this run
    Tls,
    /// Two processes over UCX, on this host
    Ucx,
    /// Two processes over UCX, with one-sided puts, on this host
    UcxPut,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Builds the images of the host package's ifunc packages with the release profile, and the host package itself with PROFILE, \
starts its `target`, waits for the line `ifunc: ready ADDRESS`, starts its `source`, and stops the target when the \
source ends. Over loopback, it starts `both` instead. The host package's manifest may name other binaries, of this package or of \
another one of the workspace: `[package.metadata.ifunc] target = \"server\"`, `source = \"client\"`, `both = \"demo\"`. Without a source, \
the target runs until it is stopped. Each program gets ARGS, IFUNC_ADDR (the target's \
address) and IFUNC_LIB_DIR (the folder of the images). Over tls, the programs are built with that feature of ifunc-rt, and IFUNC_TLS_KEY and \
IFUNC_TLS_PEERS name a key that is made for the run. The exit code is the first non-zero one.

--target-on and --source-on need what `cargo build --target` needs: the standard library and a linker for that platform. This machine \
runs such programs if its kernel knows how (as Debian's `qemu-user-static` tells it), or by the runner that CARGO_TARGET_<TRIPLE>_RUNNER \
names, as for cargo. The ifuncs are built for both platforms.

Examples:
  cargo ifunc run                                # the workspace's only host package
  cargo ifunc run hello --transport loopback
  cargo ifunc run hello --timeout 60 -- one two  # with arguments
  cargo ifunc run hello --release                # the programs optimised, as the images always are")]
pub(crate) struct RunArgs {
    /// Example (folder in examples/) or host package to run [default: the workspace's only one]
    pub(crate) name: Option<String>,
    /// Transport between source and target
    #[arg(long, env = "IFUNC_TRANSPORT", default_value = "shm", hide_env_values = true)]
    pub(crate) transport: Transport,
    /// Stop target and source after this time; build time does not count [default: 300; none for a target alone]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) timeout: Option<u64>,
    /// Cargo profile of the host package's programs
    #[arg(long, value_name = "PROFILE", default_value = "dev")]
    pub(crate) profile: String,
    /// Build the programs with the release profile
    #[arg(short, long, conflicts_with = "profile")]
    pub(crate) release: bool,
    /// Platform of the target program, such as aarch64-unknown-linux-gnu [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target_on: Option<String>,
    /// Platform of the source program [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) source_on: Option<String>,
    /// CPU of the images, as `cargo ifunc build --cpu` takes it; with several, separated by commas or repeated, libraries hold a slice for
    /// each
    #[arg(long, value_name = "CPU", value_delimiter = ',', value_parser = cpu)]
    pub(crate) cpu: Vec<ifunc_build::Cpu>,
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

#[derive(Debug, Args)]
#[command(after_help = "\
Rates refer to the time since the previous refresh; in the first one, to the time since the target started. Durations are those \
of all invocations that the target timed. An ifunc in parentheses is not installed: the target refused or evicted \
it. On a terminal, the tables are redrawn in place; elsewhere they follow each other.

The line `Exports` appears after the first change of what the target exports. It states the number of changes, and how long \
the latest one took until no invocation ran that began before it.

--json prints one object per line: `interval_s`, the time that the rates refer to; `rates` per second: `frames`, \
`invocations`, `bytes_in`, `bytes_out`, `ifuncs` (invocations by id) and `sources` (frames by number); and `stats`, \
all counters, as `ifunc_rt::stats::Stats` describes them; durations have `mean_ns`, `p50_ns`, `p90_ns`, \
`p99_ns` and `max_ns`.

A target that was built with `share_stats(false)` refuses the request.

Examples:
  cargo ifunc top shm:counter                    # until Ctrl-C
  cargo ifunc top shm:counter --once
  cargo ifunc top shm:counter --interval 0.2 --count 3 --json")]
pub(crate) struct TopArgs {
    /// Address of the target, from its line `ifunc: ready ADDRESS`
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// Time between two refreshes, in seconds
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: std::time::Duration,
    /// Number of refreshes [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Refresh once
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,
    /// Largest number of rows per table [default: what fits on the terminal, or 20]
    #[arg(long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
NAME.so is found in IFUNC_LIB_DIR, or in target/ifunc/release of the workspace around the working directory. It states the types of \
payload and answer; `cargo ifunc inspect` shows them.

JSON stands for a value as serde_json has it: structs are objects; tuples are lists; `Option` is null or the value; a variant is its name, \
or an object with its name and its value: {\"Range\": [1, 9]}. Members of the type `Option` may be missing. Bytes are a string, a list of \
numbers or {\"hex\": \"00ff\"}; they are printed as a string if they are text, and as a list otherwise. A map whose keys are no strings is a \
list of pairs. 128-bit integers may be, and beyond 64 bits are printed as, strings; so are \"NaN\", \"inf\" and \"-inf\".

An answer is printed in one line, and nothing if there is none. An ifunc that answers in parts prints one line for each when it arrives. \
Ifuncs in C, and those that encode by hand, state no type: --raw passes the bytes of a file to NAME_payload_init, and an answer in C \
is bytes.

Examples:
  cargo ifunc call shm:counter add --payload 5
  cargo ifunc call shm:counter add delta.json    # a file that contains 5
  cargo ifunc call shm:counter add - < delta.json
  cargo ifunc call shm:counter add --raw delta.bin --output counter.bin")]
pub(crate) struct CallArgs {
    /// Address of the target, from its line `ifunc: ready ADDRESS`
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// Name of the ifunc, or the path of its library
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// File with the payload as JSON; `-`: standard input
    #[arg(value_name = "PAYLOAD.json", conflicts_with_all = ["payload", "raw"])]
    pub(crate) file: Option<PathBuf>,
    /// The payload as JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, conflicts_with = "raw")]
    pub(crate) payload: Option<String>,
    /// File whose bytes the library's `NAME_payload_init` takes; of an ifunc in Rust, the encoded payload. `-`: standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) raw: Option<PathBuf>,
    /// Write the bytes of the answer to this file, and print no JSON. `-`: standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Longest wait for the answer, or for each part of it, in seconds
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: std::time::Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Removes target/ifunc: images, libraries, and what they were compiled from. What cargo has built for programs stays; \
`cargo clean` removes both.

Examples:
  cargo ifunc clean
  cargo ifunc clean --dry-run                    # how much it would remove")]
pub(crate) struct CleanArgs {
    /// Print what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Path to Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Directory to remove, instead of target/ifunc
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    match seconds.map(std::time::Duration::try_from_secs_f64) {
        Ok(Ok(time)) if (0.01..=86_400.0).contains(&time.as_secs_f64()) => Ok(time),
        _ => Err("a number of seconds from 0.01 to 86400".to_owned()),
    }
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
Without --path and --git, the project depends on the checkout that this command was built from, if it still exists.

Examples:
  cargo ifunc new hello
  cargo ifunc new hello-c --lang c
  cargo ifunc new hello-both --lang mixed")]
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
