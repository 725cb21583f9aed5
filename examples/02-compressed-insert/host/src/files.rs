//! Files, and their division into records.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The contents of a folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Regular files, relative to the folder, in order.
    pub files: Vec<PathBuf>,
    /// Counts of entries that are not files.
    pub skipped: Skipped,
}

/// Entries that were skipped.
#[derive(Debug, Default)]
pub struct Skipped {
    symlinks: usize,
    others: usize,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { symlinks, others } = self;
        write!(
            f,
            "skipped {symlinks} symbolic links and {others} sockets, pipes and devices"
        )
    }
}

/// Walks `folder`.
///
/// # Errors
/// A folder cannot be read; the message names it.
pub fn below(folder: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut folders = vec![PathBuf::new()];
    while let Some(relative) = folders.pop() {
        let named = |e: io::Error| {
            io::Error::new(
                e.kind(),
                format!("cannot read `{}`: {e}", folder.join(&relative).display()),
            )
        };
        for entry in fs::read_dir(folder.join(&relative)).map_err(named)? {
            let entry = entry.map_err(named)?;
            let kind = entry.file_type().map_err(named)?;
            let path = relative.join(entry.file_name());
            match () {
                () if kind.is_dir() => folders.push(path),
                () if kind.is_file() => found.files.push(path),
                () if kind.is_symlink() => found.skipped.symlinks += 1,
                () => found.skipped.others += 1,
            }
        }
    }
    found.files.sort();
    Ok(found)
}

/// A part of a file. Every piece is [`MAX_VALUE`](example_02_compressed_insert_ifuncs::MAX_VALUE) bytes long
/// except for the last one, which is shorter and may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    path: &'a OsStr,
    index: u32,
}

impl<'a> Piece<'a> {
    /// All pieces that a file can have.
    pub fn all(path: &'a Path) -> impl Iterator<Item = Self> {
        (0..=u32::MAX).map(|index| Self {
            path: path.as_os_str(),
            index,
        })
    }

    /// The record's key: the bytes of the path, a zero byte (which no path contains), and the number of the
    /// piece.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        [self.path.as_bytes(), &[0], &self.index.to_be_bytes()].concat()
    }
}
