//! Compares files with the records of a database.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use example_02_compressed_insert_ifuncs::MAX_VALUE;
use redb::{Database, ReadableDatabase};

use crate::files::{self, Piece};
use crate::store::RECORDS;

/// Files and bytes that were found equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verified {
    files: u64,
    bytes: u64,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verified {} files, {} bytes", self.files, self.bytes)
    }
}

/// Compares every file below `folder`, byte by byte, with its records in `database`.
///
/// # Errors
/// The first file that differs or is missing, or a read error.
pub fn verify(folder: &Path, database: &Path) -> Result<Verified, Box<dyn Error>> {
    let database = Database::open(database)?;
    let records = database.begin_read()?.open_table(RECORDS)?;
    let mut verified = Verified::default();
    for path in files::below(folder)?.files {
        let mut file = File::open(folder.join(&path))?;
        for piece in Piece::all(&path) {
            let error = |what| format!("`{}` {what}", path.display());
            let mut bytes = Vec::new();
            file.by_ref().take(MAX_VALUE as u64).read_to_end(&mut bytes)?;
            let record = records
                .get(&*piece.key())?
                .ok_or_else(|| error("is not in the database"))?;
            if record.value() != bytes {
                return Err(error("differs from the database").into());
            }
            verified.bytes += bytes.len() as u64;
            if bytes.len() < MAX_VALUE {
                break;
            }
        }
        verified.files += 1;
    }
    Ok(verified)
}
