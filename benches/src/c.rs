//! Shared libraries compiled on demand: the alternative that a user has without this project.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The flags of every library: small, only the given code, no lazy binding.
const FLAGS: &[&str] = &[
    "-O2",
    "-fPIC",
    "-fno-plt",
    "-shared",
    "-nostdlib",
    "-s",
    "-Wl,-z,noseparate-code",
    "-Wl,-z,norelro",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
];

/// Shared libraries in a temporary folder.
pub(crate) struct Libraries(TempDir);

impl Libraries {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("creating a folder for libraries")?;
        Ok(Self(folder))
    }

    /// Compiles a library.
    pub(crate) fn compile(&self, name: &str, text: &str, options: &[&str]) -> Result<PathBuf> {
        let (source, library) = (self.file(name, "c"), self.file(name, "so"));
        std::fs::write(&source, text)?;
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(FLAGS).arg("-o").arg(&library).arg(&source).args(options);
        let status = cc
            .stdin(Stdio::null())
            .status()
            .context("starting the C compiler `cc`; help: set $CC to another one")?;
        ensure!(status.success(), "the C compiler: {status}");
        Ok(library)
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        Path::new(self.0.path()).join(name).with_extension(extension)
    }
}
