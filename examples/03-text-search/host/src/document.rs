//! What the target has: a text, and one function that the code it receives may call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ifunc::Opaque;

/// The text. Ifuncs know it by the name `document/1` and cannot look inside.
///
/// It is read, not mapped: a file that somebody else makes shorter meanwhile is a shorter text, and no signal.
#[derive(Debug, Opaque)]
#[opaque("document/1")]
pub struct Document(File);

impl Document {
    /// Opens a text.
    ///
    /// # Errors
    /// There is no such file, or it is a folder, or it may not be read; its name is in the message.
    pub fn open(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot read `{}`: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        if !file.metadata().map_err(named)?.is_file() {
            let what = "it is no regular file; help: name a file, whose lines are searched";
            return Err(named(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        Ok(Self(file))
    }
}

/// Reads from `offset` on, as much as fits. Answers how many bytes that is: 0 at the end.
///
/// # Errors
/// The system's error number.
#[ifunc::export]
pub fn read_document(document: &Document, offset: u64, into: &mut [u8]) -> Result<u64, i32> {
    loop {
        match document.0.read_at(into, offset) {
            Ok(len) => return Ok(len as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // 0 would be no error to who reads it.
            Err(e) => return Err(e.raw_os_error().filter(|&number| number != 0).unwrap_or(-1)),
        }
    }
}
