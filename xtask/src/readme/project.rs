//! A page whose blocks make a project, step by step, as its reader does. The project lies outside of the checkout, beside a link to
//! it, and shares a target directory with the projects of other tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::console::{self, Step};
use super::{Page, Shell, compile};
use crate::blocks::Block;
use crate::process::{OUR_PROFILE, built, cargo, status};

/// The folder in which the reader works, and what runs there.
struct Desk {
    folder: PathBuf,
    project: PathBuf,
    /// Where the next command runs.
    shell: Shell,
    background: Vec<Child>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        for child in &mut self.background {
            console::stop(child);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes the project's files and checks what they are at the end of the page; runs nothing of it.
pub(super) fn check(page: &Page, project: &str) -> Result<String, String> {
    let mut desk = Desk::new(project)?;
    desk.follow(page, |step| {
        let commands = ["cargo ifunc new ", "cd ", "rm "];
        commands.iter().any(|of| step.command.starts_with(of))
    })?;
    status(
        cargo(["check", "--quiet", "--workspace", "--all-targets", "--offline"])
            .args(OUR_PROFILE)
            .current_dir(&desk.project)
            .env("CARGO_TARGET_DIR", crate::target()),
    )?;
    Ok("its commands run at night".into())
}

/// Does everything that the page says.
pub(super) fn run(page: &Page, project: &str) -> Result<String, String> {
    Desk::new(project)?.follow(page, |_| true)?;
    Ok(String::new())
}

impl Desk {
    fn new(project: &str) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("ifunc-book-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(io)?;
        let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
        symlink(root, folder.join("ifunc")).map_err(io)?;
        let command = built(&["cargo-ifunc"])?.join("cargo-ifunc");
        Ok(Self {
            project: folder.join(project),
            shell: Shell {
                folder: folder.clone(),
                here: true,
                command: Some(command),
            },
            folder,
            background: Vec::new(),
        })
    }

    /// Writes the page's files, and runs those steps of its consoles that `is_run` picks.
    fn follow(&mut self, page: &Page, is_run: impl Fn(&Step) -> bool) -> Result<(), String> {
        for block in page.blocks() {
            if let Some(file) = block.file() {
                self.write(file, &block)?;
            } else if block.language() == "console" && !block.is_only_read() {
                for step in console::steps(&block.text)?.iter().filter(|step| is_run(step)) {
                    self.step(&block, step)?;
                }
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, block: &Block<'_>) -> Result<(), String> {
        compile::write(&self.project.join(file), &block.text)
    }

    fn step(&mut self, block: &Block<'_>, step: &Step) -> Result<(), String> {
        if let Some(folder) = step.command.strip_prefix("cd ") {
            self.shell.folder.push(folder);
            return Ok(());
        }
        if block.has("background") {
            let log = self.folder.join(format!("background-{}.log", block.line));
            let child = console::background(&self.shell, block, step, &log)?;
            self.background.push(child);
            return Ok(());
        }
        console::once(&self.shell, block, step)?;
        let target = self.project.join("target");
        if self.project.is_dir() && !target.exists() {
            share_target(&target)?;
        }
        Ok(())
    }
}

/// What other projects of the tests have compiled is not compiled again.
fn share_target(target: &Path) -> Result<(), String> {
    let shared = crate::target().join("tmp/projects");
    let shared = match shared.is_absolute() {
        true => shared,
        false => std::env::current_dir().map_err(|e| e.to_string())?.join(shared),
    };
    fs::create_dir_all(&shared)
        .and_then(|()| symlink(&shared, target))
        .map_err(|e| format!("cannot make `{}`: {e}", target.display()))
}
