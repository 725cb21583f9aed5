//! A copy of the checkout, which is mutated. Files that do not change keep their time, so that builds are incremental.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

pub(crate) struct Tree {
    pub(crate) folder: PathBuf,
}

impl Tree {
    /// Makes the copy in `folder`, or brings it up to date.
    pub(crate) fn copy(folder: PathBuf) -> Result<Self, String> {
        let tree = Self { folder };
        let files = files()?;
        let known = tree.folder.join(".files");
        for old in fs::read_to_string(&known).unwrap_or_default().lines() {
            if !files.contains(old) {
                let _ = fs::remove_file(tree.folder.join(old));
            }
        }
        for file in &files {
            tree.restore(file)?;
        }
        let list: String = files.iter().map(|file| format!("{file}\n")).collect();
        tree.write_if_changed(&known, list.as_bytes())?;
        Ok(tree)
    }

    /// Makes a file what it is in the checkout.
    pub(crate) fn restore(&self, file: &str) -> Result<(), String> {
        let from = root().join(file);
        let bytes = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        self.write_if_changed(&self.folder.join(file), &bytes)
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), String> {
        self.write_if_changed(&self.folder.join(file), text.as_bytes())
    }

    fn write_if_changed(&self, path: &Path, bytes: &[u8]) -> Result<(), String> {
        if fs::read(path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(named)?;
        }
        fs::write(path, bytes).map_err(named)
    }
}

/// What the checkout holds, without what no test of an area reads.
fn files() -> Result<BTreeSet<String>, String> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = command
        .current_dir(root())
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let list = String::from_utf8(output.stdout).map_err(|error| format!("git ls-files: {error}"))?;
    let is_read = |file: &&str| {
        !file.is_empty()
            && !file.starts_with("fuzz/")
            && !file.starts_with("xtask/mutants/")
            && root().join(file).is_file()
    };
    Ok(list.split('\0').filter(is_read).map(str::to_owned).collect())
}
