//! One run of cargo, and the processing of its messages.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use cargo_metadata::{Message, PackageId};

use super::command::{Job, Task};
use super::diagnose::Diagnosis;
use crate::{BuildError, Progress};

/// A message of a reader thread.
enum Event {
    /// A line of standard output.
    Stdout(String),
    Stderr(String),
}

impl Event {
    /// Whether it is a warning of the compiler about a flag that the builder sets for AArch64, on each crate.
    fn is_about_own_flags(&self) -> bool {
        const WARNING: &str = "unstable feature specified for `-Ctarget-feature`: `outline-atomics`";
        matches!(self, Self::Stdout(line) if line.contains(WARNING))
    }
}

impl Job<'_> {
    /// Compiles a package, or its example, to a static library and returns its path; `None` for a package that depends
    /// on `ifunc` without using it: its ifuncs, if any, are in C.
    pub(super) fn compile(&self, progress: &mut dyn Progress) -> Result<Option<PathBuf>, BuildError> {
        let package = self.package();
        progress.compiling(&package.name);
        let mut archive = None;
        // The error about a missing panic handler does not concern a package without Rust ifuncs.
        let mut withheld = Vec::new();
        let mut diagnosis = Diagnosis::default();
        let status = self.run(progress, |event, progress| match event {
            Event::Stdout(line) => match serde_json::from_str(&line) {
                Ok(Message::CompilerArtifact(artifact)) => {
                    let is_requested = artifact.manifest_path == package.manifest_path
                        && match self.task {
                            Task::Example(example, _) => {
                                artifact.target.is_example() && artifact.target.name == example.name
                            }
                            _ => !artifact.target.is_example(),
                        };
                    // The archive of an example that cargo takes for a program has the program's path.
                    let program = matches!(self.task, Task::Example(example, _) if !example.library);
                    if is_requested
                        && let Some(file) = artifact
                            .filenames
                            .iter()
                            .find(|file| program || file.extension() == Some("a"))
                    {
                        archive = Some(file.clone().into_std_path_buf());
                    }
                }
                Ok(Message::CompilerMessage(message)) => {
                    let expected = Diagnosis::is_about_the_panic_handler(&message.message);
                    diagnosis.compiler(&message.message);
                    match message.message.rendered {
                        Some(rendered) if expected => withheld.push(rendered),
                        Some(rendered) => progress.diagnostic(&rendered),
                        None => {}
                    }
                }
                _ => {}
            },
            Event::Stderr(line) => {
                diagnosis.cargo(&line);
                match line.trim_start().starts_with("error") {
                    true => withheld.push(line + "\n"),
                    false => progress.cargo(&line),
                }
            }
        })?;
        match archive {
            Some(archive) if status.success() => Ok(Some(archive)),
            None if diagnosis.misses_only_the_panic_handler() => Ok(None),
            _ => {
                withheld.iter().for_each(|lines| progress.diagnostic(lines));
                Err(BuildError::Compile {
                    package: package.name.clone(),
                    helps: diagnosis.helps(self, package),
                })
            }
        }
    }

    /// Checks the packages and returns an error for each that has one. With `verbatim`, cargo's messages are passed on
    /// unchanged; otherwise the compiler's rendered diagnostics are.
    pub(super) fn check(
        &self,
        verbatim: bool,
        progress: &mut dyn Progress,
    ) -> Result<Vec<BuildError>, BuildError> {
        let mut of_packages: Vec<Diagnosis> = self.packages.iter().map(|_| Diagnosis::default()).collect();
        let mut of_cargo = Diagnosis::default();
        let mut withheld = Vec::new();
        let index = |id: &PackageId| self.packages.iter().position(|package| package.id == *id);
        let status = self.run(progress, |event, progress| match event {
            Event::Stdout(line) => {
                if let Ok(Message::CompilerMessage(message)) = serde_json::from_str(&line) {
                    match index(&message.package_id) {
                        Some(index) => of_packages[index].compiler(&message.message),
                        None => of_cargo.compiler(&message.message),
                    }
                    if !verbatim && let Some(rendered) = message.message.rendered {
                        progress.diagnostic(&rendered);
                    }
                }
                if verbatim {
                    progress.message(&line);
                }
            }
            Event::Stderr(line) => match line.trim_start().starts_with("error") {
                true => withheld.push(line + "\n"),
                false => progress.cargo(&line),
            },
        })?;
        let mut errors: Vec<BuildError> = self
            .packages
            .iter()
            .zip(&of_packages)
            .filter(|(_, diagnosis)| diagnosis.has_errors())
            .map(|(package, diagnosis)| BuildError::Compile {
                package: package.name.clone(),
                helps: diagnosis.helps(self, package),
            })
            .collect();
        if errors.is_empty() && !status.success() {
            // The error is cargo's own, or in a dependency.
            withheld.iter().for_each(|lines| {
                progress.diagnostic(lines);
                of_cargo.cargo(lines);
            });
            errors.push(BuildError::Compile {
                package: self.package().name.clone(),
                helps: of_cargo.helps(self, self.package()),
            });
        }
        Ok(errors)
    }

    /// The text that the compiler prints.
    pub(super) fn expand(&self, progress: &mut dyn Progress) -> Result<String, BuildError> {
        let package = self.package();
        progress.compiling(&package.name);
        let mut text = String::new();
        let mut lines = Vec::new();
        let status = self.run(progress, |event, progress| match event {
            Event::Stdout(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            // The compiler's lines come between cargo's, and only matter if it fails.
            Event::Stderr(line) => {
                progress.cargo(&line);
                lines.push(line);
            }
        })?;
        if status.success() {
            return Ok(text);
        }
        lines
            .iter()
            .for_each(|line| progress.diagnostic(&format!("{line}\n")));
        Err(BuildError::Compile {
            package: package.name.clone(),
            helps: Vec::new(),
        })
    }

    /// Runs cargo to its end.
    fn run(
        &self,
        progress: &mut dyn Progress,
        mut handle: impl FnMut(Event, &mut dyn Progress),
    ) -> Result<ExitStatus, BuildError> {
        let mut command = self.command();
        if self.options.verbose {
            progress.command(&format!("{command:?}"));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cargo_missing)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let (send, events) = mpsc::channel();
            let second = send.clone();
            scope.spawn(move || lines(stdout).try_for_each(|line| second.send(Event::Stdout(line))));
            scope.spawn(move || lines(stderr).try_for_each(|line| send.send(Event::Stderr(line))));
            for event in events {
                if !event.is_about_own_flags() {
                    handle(event, progress);
                }
            }
        });
        child.wait().map_err(cargo_missing)
    }
}

fn lines(from: Option<impl Read>) -> impl Iterator<Item = String> {
    let mut reader = from.map(BufReader::new);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match reader.as_mut()?.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(
                String::from_utf8_lossy(&line)
                    .trim_end_matches(['\n', '\r'])
                    .to_owned(),
            ),
        }
    })
}

fn cargo_missing(source: std::io::Error) -> BuildError {
    BuildError::Spawn {
        program: "cargo".into(),
        source,
        help:
            "cargo is needed: https://rustup.rs installs it, or name one in the environment variable `CARGO`"
                .into(),
    }
}
