//! The errors of the command.

use std::path::PathBuf;

/// An error of the command. The text states the problem; lines that begin with `help: ` state the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A build failed.
    #[error(transparent)]
    Build(#[from] ifunc_build::BuildError),
    /// A file is not an ifunc library.
    #[error(transparent)]
    Library(#[from] ifunc_build::LibraryError),
    /// An image does not parse.
    #[error("`{}`: {source}", file.display())]
    Image {
        /// The file.
        file: PathBuf,
        /// The error.
        source: ifunc_abi::image::ImageError,
    },
    /// `cargo metadata` failed, with this text.
    #[error("cannot read the workspace: {0}")]
    Metadata(String),
    /// A file of keys or signatures cannot be used.
    #[error(transparent)]
    Key(#[from] ifunc_rt::keys::KeyError),
    /// An operation on a file or directory failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A program does not start.
    #[error("cannot run `{program}`: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The error.
        source: std::io::Error,
    },
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
    /// Any other error, as text.
    #[error("{0}")]
    Message(String),
    /// A usage error, as text.
    #[error("{0}")]
    Usage(String),
    /// The error was already reported; carries the exit code.
    #[error("exit code {0}")]
    Exit(u8),
}

impl Failure {
    /// The exit code: 1, or 2 for a usage error.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Exit(code) => *code,
            _ => 1,
        }
    }

    /// For `map_err`: `action` names the operation on `path`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
