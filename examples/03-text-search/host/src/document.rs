//! The target's text, and one function on it that ifuncs may call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ifunc::Opaque;

/// The text. Ifuncs refer to it by the name `document/1` and cannot access its contents.
///
/// The target reads the file instead of mapping it: if another process truncates the file, the text ends
/// earlier and no signal is raised.
#[derive(Debug, Opaque)]
#[opaque("document/1")]
pub struct Document(File);

impl Document {
    /// Opens a text.
    ///
    /// # Errors
    /// The file does not exist, is a folder, or is not readable; the message names it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot read `{}`: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        if !file.metadata().map_err(named)?.is_file() {
            let what = "it is not a regular file; help: name a file, whose lines are searched";
            return Err(named(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        Ok(Self(file))
    }
}

/// Fills `into` from `offset` on. Returns the number of bytes read: 0 at the end.
///
/// # Errors
/// The system's error number.
#[ifunc::export]
pub fn read_document(document: &Document, offset: u64, into: &mut [u8]) -> Result<u64, i32> {
    loop {
        match document.0.read_at(into, offset) {
            Ok(len) => return Ok(len as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // 0 would mean success to the caller.
            Err(e) => return Err(e.raw_os_error().filter(|&number| number != 0).unwrap_or(-1)),
        }
    }
}
