//! What stops the command.

use std::path::PathBuf;

/// What stops the command. The text says what was found and, in lines that begin with `help: `, what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A build failed.
    #[error(transparent)]
    Build(#[from] ifunc_build::BuildError),
    /// A file is no ifunc library.
    #[error(transparent)]
    Library(#[from] ifunc_build::LibraryError),
    /// An image does not parse.
    #[error("`{}`: {source}", file.display())]
    Image {
        /// Where it stands.
        file: PathBuf,
        /// Why.
        source: ifunc_abi::image::ImageError,
    },
    /// `cargo metadata` failed; cargo's own words say why.
    #[error("cannot read the workspace: {0}")]
    Metadata(String),
    /// A file or directory.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program does not start.
    #[error("cannot run `{program}`: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
    /// Anything with words of its own.
    #[error("{0}")]
    Said(String),
    /// As above, where the command line itself makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Already reported; only the exit code is left.
    #[error("exit code {0}")]
    Exit(u8),
}

impl Failure {
    /// The exit code: 1, or 2 for a command line that makes no sense.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Exit(code) => *code,
            _ => 1,
        }
    }

    /// For `map_err`: `action` names what was being done to `path`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
