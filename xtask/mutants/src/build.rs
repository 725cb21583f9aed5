//! Compiling test programs in the copy.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// A test program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The folder of its package, in which it runs.
    pub(crate) package: PathBuf,
    /// What it is always started with.
    pub(crate) args: &'static [&'static str],
}

/// An error of the compiler.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    pub(crate) text: String,
    pub(crate) code: String,
    /// File, first byte and whether it is what the error is about.
    pub(crate) spans: Vec<(String, usize, bool)>,
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    rendered: Option<String>,
    code: Option<Code>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    is_primary: bool,
}

/// A program of another package that finds mutants, too.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) package: &'static str,
    pub(crate) args: &'static [&'static str],
}

impl Beside {
    /// Compiles it, optimised: it computes for long. Its sources are those whose tests compile.
    pub(crate) fn build(&self, tree: &Path, target: &Path) -> Result<Program, String> {
        let mut command = cargo(tree, target);
        command.args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--package",
            self.package,
        ]);
        let output = command
            .output()
            .map_err(|error| format!("cargo build: {error}"))?;
        match output.status.success() {
            true => Ok(Program {
                path: target.join("release").join(self.package),
                package: tree.to_owned(),
                args: self.args,
            }),
            false => Err(format!(
                "cargo build failed:\n{}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

fn cargo(tree: &Path, target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        // One mutant after the other changes a few lines of one crate; nothing is debugged.
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Compiles the tests of a package, or returns why they do not compile.
pub(crate) fn tests(
    tree: &Path,
    target: &Path,
    args: &[&str],
) -> Result<Result<Vec<Program>, Vec<Diagnostic>>, String> {
    let mut command = cargo(tree, target);
    command
        .args(["test", "--no-run", "--quiet", "--locked", "--message-format=json"])
        .args(args);
    let output = command.output().map_err(|error| format!("cargo test: {error}"))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let mut programs = Vec::new();
    let mut errors = Vec::new();
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let line: Line =
            serde_json::from_str(line).map_err(|error| format!("a message of cargo: {error}"))?;
        match line {
            Line {
                executable: Some(path),
                profile: Some(Profile { test: true }),
                manifest_path: Some(manifest),
                ..
            } => {
                let package = manifest.parent().unwrap_or(tree).to_owned();
                programs.push(Program {
                    path,
                    package,
                    args: &[],
                });
            }
            Line {
                reason,
                message: Some(message),
                ..
            } if reason == "compiler-message" && message.level == "error" => {
                let span = |span: Span| (span.file_name, span.byte_start, span.is_primary);
                errors.push(Diagnostic {
                    text: message.rendered.unwrap_or_default(),
                    code: message.code.map(|code| code.code).unwrap_or_default(),
                    spans: message.spans.into_iter().map(span).collect(),
                });
            }
            _ => {}
        }
    }
    if output.status.success() {
        return Ok(Ok(programs));
    }
    errors.retain(|error| !error.spans.is_empty());
    match errors.is_empty() {
        true => Err(format!(
            "cargo test failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )),
        false => Ok(Err(errors)),
    }
}
