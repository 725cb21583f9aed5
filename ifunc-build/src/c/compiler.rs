//! The C compiler and its flags.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::cpu;
use crate::make_rule::prerequisites;
use crate::shared_library::io;
use crate::{BuildError, COptions, Color, Progress};

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

/// The C compiler: the one of the options, `$CC`, or `cc`.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    program: String,
    /// More words of `$CC`: `CC="ccache gcc"`.
    args: Vec<String>,
    /// The output of `--version`.
    version: OnceLock<String>,
    /// Its target machine.
    machine: OnceLock<String>,
    /// The folder of `ifunc.h`.
    headers: Option<PathBuf>,
}

impl Compiler {
    /// The compiler of the options, or that of the environment.
    pub(crate) fn new(asked: Option<&str>) -> Self {
        let cc = match asked {
            Some(asked) => asked.to_owned(),
            None => std::env::var("CC").unwrap_or_default(),
        };
        let mut words = cc.split_whitespace().map(str::to_owned);
        Self {
            program: words.next().unwrap_or_else(|| "cc".into()),
            args: words.collect(),
            version: OnceLock::new(),
            machine: OnceLock::new(),
            headers: None,
        }
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
            help: "a C compiler is needed: install `gcc` or `clang`, or name one in the environment variable `CC`"
                .into(),
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
        command.arg("-c").args(FLAGS);
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

    /// The flag for the CPU level and the user's own flags, in this order: the last `-march` wins. One in `$CC` counts
    /// as the user's own. An architecture without levels gets no flag.
    fn flags(&self, options: &COptions) -> Vec<String> {
        let chosen = self.args.iter().any(|arg| arg.starts_with("-march="));
        let mut flags = Vec::new();
        if !chosen && self.machine().starts_with("x86_64") {
            flags.push(format!("-march={}", options.cpu.of_compilers()));
        }
        flags.extend_from_slice(&options.cflags);
        flags
    }

    /// The target machine, such as `x86_64-linux-gnu`, read once.
    fn machine(&self) -> &str {
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
        cpu::levels(&macros).map_err(|unknown| {
            let flags: Vec<String> = self.args.iter().chain(&cflags).cloned().collect();
            unknown.into_error(&self.name(), &flags)
        })
    }
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
