//! The C compiler and its flags.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ifunc_abi::image::ARCH_AARCH64;

use super::{choice, cpu};
use crate::make_rule::prerequisites;
use crate::shared_library::io;
use crate::triple::{Triple, arch_of_machine};
use crate::{BuildError, COptions, Color, Cpu, Progress};

/// The flags of every C ifunc. Position-independent through the GOT, one section per function; calls stay `PLT32`,
/// which needs no rewriting. No fortified functions: targets do not provide `__memcpy_chk`. Large frames are probed
/// page by page, so that a target's guard page catches them.
const FLAGS: [&str; 11] = [
    "-O2",
    "-g1",
    "-fPIC",
    "-fno-semantic-interposition",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-common",
    "-fno-asynchronous-unwind-tables",
    "-fstack-clash-protection",
    "-fno-lto",
    "-U_FORTIFY_SOURCE",
];

/// The contents of `ifunc.h`.
const HEADER: &str = include_str!("../../include/ifunc.h");

/// What the compilers of AArch64 add to [`FLAGS`]. Functions that choose between two kinds of atomic instructions would be set up by a
/// constructor. GCC probes for a guard of 64 KiB otherwise.
const FLAGS_OF_AARCH64: [&str; 1] = ["-mno-outline-atomics"];
const FLAGS_OF_GCC_FOR_AARCH64: [&str; 1] = ["--param=stack-clash-protection-guard-size=12"];
/// Older Clang for AArch64 does not probe. A frame of this size, which writes at its top, does not step over the guard of a target's stack
/// (64 KiB); larger ones are refused, except those whose size is known at run time.
const FLAGS_OF_CLANG_THAT_DOES_NOT_PROBE: [&str; 2] =
    ["-Wframe-larger-than=61440", "-Werror=frame-larger-than"];
/// The first version of Clang that probes on AArch64.
const CLANG_PROBES_SINCE: u32 = 18;

/// The C compiler: the one of the options, of the environment, or `cc`; of several for a triple, see [`choice`].
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    program: String,
    /// More words of `$CC`: `CC="ccache gcc"`.
    args: Vec<String>,
    /// The help where it cannot be started.
    install: String,
    /// The output of `--version`.
    version: OnceLock<String>,
    /// Its target machine.
    machine: OnceLock<String>,
    /// The folder of `ifunc.h`.
    headers: Option<PathBuf>,
}

impl Compiler {
    /// The compiler for these options.
    pub(crate) fn of(options: &COptions) -> Result<Self, BuildError> {
        let triple = options.triple.as_deref().map(Triple::new).transpose()?;
        let compiler = Self::new(options.compiler.as_deref(), triple.as_ref())?;
        let cpu = compiler.cpu(options);
        let lacks = cpu.not_in_c();
        if lacks.is_empty() || compiler.march_of_user(options).is_some() {
            return Ok(compiler);
        }
        let (without, version) = cpu.nearest_in_c();
        Err(BuildError::FeaturesOfC {
            cpu,
            features: lacks.join(", "),
            version,
            without,
        })
    }

    /// The compiler that was asked for, or that of the environment; for a triple, if there is one.
    pub(crate) fn new(asked: Option<&str>, triple: Option<&Triple>) -> Result<Self, BuildError> {
        if let Some(triple) = triple {
            return choice::for_triple(asked, triple);
        }
        let cc = match asked {
            Some(asked) => asked.to_owned(),
            None => std::env::var("CC").unwrap_or_default(),
        };
        let install =
            "a C compiler is needed: install `gcc` or `clang`, or name one in the environment variable `CC`";
        Ok(Self::named(&cc, "cc", install.into()))
    }

    /// A compiler by its words. `default`: the program if there are none.
    pub(super) fn named(words: &str, default: &str, install: String) -> Self {
        let mut words = words.split_whitespace().map(str::to_owned);
        Self {
            program: words.next().unwrap_or_else(|| default.into()),
            args: words.collect(),
            install,
            version: OnceLock::new(),
            machine: OnceLock::new(),
            headers: None,
        }
    }

    /// The same, with one more argument.
    pub(super) fn with(mut self, argument: String) -> Self {
        self.args.push(argument);
        self.machine = OnceLock::new();
        self
    }

    /// Whether it is Clang, which compiles for every architecture.
    pub(super) fn is_clang(&self) -> bool {
        self.version().contains("clang version")
    }

    /// Writes `ifunc.h` into `include` beside a folder of libraries, for later compilations and for editors.
    pub(crate) fn write_headers(&mut self, folder: &Path) -> Result<(), BuildError> {
        let include = folder.parent().unwrap_or(folder).join("include");
        // An absolute path works in every working directory.
        let include = std::path::absolute(&include).map_err(io("find", &include))?;
        write_header(&include)?;
        self.headers = Some(include);
        Ok(())
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> String {
        std::iter::once(&self.program)
            .chain(&self.args)
            .map(|word| &**word)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The output of `--version`, read once: it distinguishes compilers of one name.
    pub(crate) fn version(&self) -> &str {
        self.version.get_or_init(|| self.output_of("--version"))
    }

    /// A command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(std::process::Stdio::null());
        command
    }

    /// A command that runs it in a folder, or in the current directory.
    pub(crate) fn command_in(&self, folder: Option<&Path>) -> Command {
        let Some(folder) = folder else {
            return self.command();
        };
        // `CC=./wrapper` is relative to the current directory, whatever folder it runs in.
        let program = match self.program.contains('/') {
            true => std::path::absolute(&self.program).unwrap_or_else(|_| (&self.program).into()),
            false => (&self.program).into(),
        };
        let mut command = Command::new(program);
        command.args(&self.args).stdin(std::process::Stdio::null());
        command.current_dir(folder);
        command
    }

    /// The error for a compiler that cannot be started.
    pub(crate) fn spawn_error(&self, source: std::io::Error) -> BuildError {
        BuildError::Spawn {
            program: self.name(),
            source,
            help: self.install.clone(),
        }
    }

    /// Compiles a file to the bytes of an object.
    pub(crate) fn compile(
        &self,
        file: &Path,
        options: &COptions,
        progress: &mut dyn Progress,
    ) -> Result<Vec<u8>, BuildError> {
        let work = tempfile::tempdir().map_err(io("create a directory in", &std::env::temp_dir()))?;
        // The compiler may run in another directory.
        let work_path = std::path::absolute(work.path()).map_err(io("find", work.path()))?;
        let (object, rule) = (work_path.join("object.o"), work_path.join("object.d"));
        let folder = options.current_dir.as_deref();
        let mut command = self.command_in(folder);
        command.arg("-c").args(FLAGS).args(self.flags_of_machine());
        if options.color == Color::Always {
            command.arg("-fdiagnostics-color=always");
        }
        command.args(self.flags(options));
        // After the user's own folders: a header of the user with the same name wins.
        let headers = match &self.headers {
            Some(include) => include.clone(),
            None => {
                let include = work_path.join("include");
                write_header(&include)?;
                include
            }
        };
        command.arg("-isystem").arg(headers);
        // The compilation itself lists the files: macros decide what is included.
        command.args(["-MMD", "-MF"]).arg(&rule);
        command.arg("-o").arg(&object).arg(seen_from(folder, file)?);
        if options.verbose {
            progress.command(&format!("{command:?}"));
        }
        let output = command.output().map_err(|e| self.spawn_error(e))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(BuildError::CompileC {
                file: file.into(),
                compiler: self.name(),
                stderr: stderr.trim_end().into(),
            });
        }
        if !stderr.is_empty() {
            progress.diagnostic(&stderr);
        }
        let rule = std::fs::read(&rule).unwrap_or_default();
        let from = match folder {
            Some(folder) => folder.to_owned(),
            None => std::env::current_dir().unwrap_or_default(),
        };
        for path in prerequisites(&String::from_utf8_lossy(&rule)) {
            progress.read(&from.join(path));
        }
        std::fs::read(&object).map_err(io("read", &object))
    }

    /// The compiler's support library: 128-bit division and the like.
    pub(crate) fn support_library(&self) -> Option<PathBuf> {
        let output = self.command().arg("-print-libgcc-file-name").output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        (output.status.success() && path.is_absolute()).then_some(path)
    }

    /// The CPU of the options, if it is of the architecture that this compiler compiles for; of others the least.
    fn cpu(&self, options: &COptions) -> Cpu {
        Cpu::baseline(arch_of_machine(self.machine())).with(options.cpu)
    }

    /// The user's own choice of a CPU in `$CC` or in the flags: the last one wins.
    fn march_of_user<'a>(&'a self, options: &'a COptions) -> Option<&'a str> {
        let is_arm = arch_of_machine(self.machine()) == ARCH_AARCH64;
        let value = |arg: &'a String| {
            // On x86-64 `-mcpu` chooses no instructions.
            let other = arg.strip_prefix("-mcpu=").filter(|_| is_arm);
            arg.strip_prefix("-march=").or(other)
        };
        // GCC warns of an architecture beside a CPU, which Clang lets win.
        let of_flags = options.cflags.iter().rev().find_map(value).filter(|_| is_arm);
        of_flags.or_else(|| self.args.iter().rev().find_map(value))
    }

    /// The flag for the CPU level and the user's own flags, in this order: the last `-march` wins. One in `$CC` counts
    /// as the user's own. Of an architecture that is not known, nothing is chosen.
    fn flags(&self, options: &COptions) -> Vec<String> {
        let mut flags = Vec::new();
        let march = self.cpu(options).march(self.is_clang());
        if let (None, Some(march)) = (self.march_of_user(options), march) {
            flags.push(format!("-march={march}"));
        }
        flags.extend_from_slice(&options.cflags);
        flags
    }

    /// The flags for its architecture alone.
    fn flags_of_machine(&self) -> Vec<&'static str> {
        if arch_of_machine(self.machine()) != ARCH_AARCH64 {
            return Vec::new();
        }
        let mut flags = FLAGS_OF_AARCH64.to_vec();
        match self.is_clang() {
            true => {
                // Older versions do not know all of `FLAGS` for this architecture, and say so for each file.
                flags.push("-Qunused-arguments");
                if clang_version(self.version()).is_none_or(|version| version < CLANG_PROBES_SINCE) {
                    flags.extend(FLAGS_OF_CLANG_THAT_DOES_NOT_PROBE);
                }
            }
            false => flags.extend(FLAGS_OF_GCC_FOR_AARCH64),
        }
        flags
    }

    /// The target machine, such as `x86_64-linux-gnu`, read once.
    pub(super) fn machine(&self) -> &str {
        self.machine.get_or_init(|| self.output_of("-dumpmachine"))
    }

    /// Its standard output with one argument; empty if it cannot run, which the compilation reports.
    fn output_of(&self, argument: &str) -> String {
        let output = self.command().arg(argument).output();
        output.map_or_else(
            |_| String::new(),
            |o| String::from_utf8_lossy(&o.stdout).into_owned(),
        )
    }

    /// CPU features that the code may use, as an image states them: read from the macros that the compiler predefines
    /// with the same flags.
    pub(crate) fn cpu_features(&self, options: &COptions) -> Result<u64, BuildError> {
        let cflags = self.flags(options);
        let mut command = self.command_in(options.current_dir.as_deref());
        command.args(&cflags).args(["-dM", "-E", "-x", "c", "/dev/null"]);
        let output = command.output().map_err(|e| self.spawn_error(e))?;
        if !output.status.success() {
            return Err(BuildError::CompileC {
                file: "/dev/null".into(),
                compiler: format!("{} -dM -E {}", self.name(), cflags.join(" ")),
                stderr: String::from_utf8_lossy(&output.stderr).trim_end().into(),
            });
        }
        let macros = String::from_utf8_lossy(&output.stdout);
        let stated = cpu::features(&macros).map_err(|unknown| {
            let flags: Vec<String> = self.args.iter().chain(&cflags).cloned().collect();
            unknown.into_error(&self.name(), &flags)
        })?;
        // Older compilers of AArch64 have features for which they have no macro.
        if arch_of_machine(self.machine()) != ARCH_AARCH64 {
            return Ok(stated);
        }
        let march = self.march_of_user(options).map(Cpu::of_march);
        Ok(stated | march.unwrap_or_else(|| self.cpu(options).features()))
    }
}

/// The major version in what Clang says of itself.
fn clang_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("clang version ")?;
    version.split('.').next()?.parse().ok()
}

/// The name of a file for a compiler that runs in `folder`: short where it can be, for messages and `__FILE__`.
fn seen_from(folder: Option<&Path>, file: &Path) -> Result<PathBuf, BuildError> {
    let Some(folder) = folder else {
        return Ok(file.into());
    };
    let file = std::path::absolute(file).map_err(io("find", file))?;
    Ok(file.strip_prefix(folder).map_or(file.clone(), Path::to_owned))
}

/// Writes `ifunc.h` unless it is up to date. The write is atomic for concurrent builds.
fn write_header(include: &Path) -> Result<(), BuildError> {
    let header = include.join("ifunc.h");
    if std::fs::read(&header).is_ok_and(|found| found == HEADER.as_bytes()) {
        return Ok(());
    }
    std::fs::create_dir_all(include).map_err(io("create", include))?;
    let work = tempfile::Builder::new()
        .prefix(".build-")
        .tempdir_in(include)
        .map_err(io("create a directory in", include))?;
    let new = work.path().join("ifunc.h");
    std::fs::write(&new, HEADER).map_err(io("write", &new))?;
    std::fs::rename(&new, &header).map_err(io("put in place", &header))
}
