//! Cargo's messages for an editor that has one check command for all packages of a workspace: the ifunc packages as image
//! builds see them, then everything as `cargo check` sees it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ifunc_build::Progress;
use serde_json::{Value, json};

use crate::cli::CheckArgs;
use crate::error::Failure;
use crate::progress::BuildProgress;

/// Passes messages on to standard output, each once: the two views of an ifunc package agree in most of what there is
/// to say.
pub(super) struct Editor<'a> {
    progress: BuildProgress<'a>,
    printed: HashSet<String>,
    out: std::io::Stdout,
    /// Whether standard output is still there.
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

    /// Checks the workspace as cargo does it by itself, in a folder of our own: an editor must not wait for the user's
    /// builds. Whether all is well.
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

    /// The last message.
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
            // Ours is the last.
            Ok(message) if message["reason"] == "build-finished" => {}
            Ok(message) if message["reason"] == "compiler-message" => {
                // What it is about and what it says: the target's crate types differ between the views.
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
