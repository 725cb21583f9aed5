//! Cargo's messages for an editor that has one check command for all packages of a workspace: first the ifunc
//! packages as in image builds, then all packages as in `cargo check`.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ifunc_build::Progress;
use serde_json::{Value, json};

use crate::cli::CheckArgs;
use crate::error::Failure;
use crate::progress::BuildProgress;

/// Passes messages on to standard output, each once: the two builds of an ifunc package report mostly the
/// same messages.
pub(super) struct Editor<'a> {
    progress: BuildProgress<'a>,
    printed: HashSet<String>,
    out: std::io::Stdout,
    /// The error that closed standard output, if any.
    failed: Option<std::io::Error>,
}

impl<'a> Editor<'a> {
    pub(super) fn new(progress: BuildProgress<'a>) -> Self {
        Self {
            progress,
            printed: HashSet::new(),
            out: std::io::stdout(),
            failed: None,
        }
    }

    /// Runs `cargo check` on the workspace, in a target directory of its own, so that an editor does not wait
    /// for the user's builds. Returns whether it succeeded.
    pub(super) fn check_workspace(
        &mut self,
        target: &Path,
        args: &CheckArgs,
        format: &str,
    ) -> Result<bool, Failure> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&program);
        command.args(["check", "--workspace", "--all-targets", "--keep-going"]);
        command.args(["--message-format", format]);
        args.cargo.pass_to(&mut command);
        let spawn = |source| Failure::Spawn {
            program: program.display().to_string(),
            source,
        };
        let mut child = command
            .env("CARGO_TARGET_DIR", target)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(spawn)?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines() {
                self.message(&line.map_err(Failure::io("read the messages of", &program))?);
            }
        }
        Ok(child.wait().map_err(spawn)?.success())
    }

    /// Writes the last message.
    pub(super) fn finish(mut self, success: bool) -> Result<(), Failure> {
        self.line(&json!({ "reason": "build-finished", "success": success }).to_string());
        self.failed.map_or(Ok(()), |e| Err(Failure::Output(e)))
    }

    fn line(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }
}

impl Progress for Editor<'_> {
    fn message(&mut self, line: &str) {
        match serde_json::from_str::<Value>(line) {
            // `finish` writes this message.
            Ok(message) if message["reason"] == "build-finished" => {}
            Ok(message) if message["reason"] == "compiler-message" => {
                // Package and text identify a message: the crate types of the target differ between the
                // builds.
                let key = format!("{}\n{}", message["package_id"], message["message"]["rendered"]);
                if self.printed.insert(key) {
                    self.line(line);
                }
            }
            _ => self.line(line),
        }
    }

    fn cargo(&mut self, line: &str) {
        self.progress.cargo(line);
    }

    fn diagnostic(&mut self, rendered: &str) {
        self.progress.diagnostic(rendered);
    }

    fn command(&mut self, line: &str) {
        self.progress.command(line);
    }
}
