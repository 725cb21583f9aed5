//! A snapshot on its way to a source that asked, page by page.

use ifunc_abi::stats::{MAX_BYTES, MAX_LISTED, PageHead, VERSION};
use ifunc_abi::status::{Rejection, Status};
use zerocopy::IntoBytes;

use super::book::Book;

/// The snapshot that a source is reading: one per connection, as long as it is read.
#[derive(Debug, Default)]
pub(in crate::target) struct Pages {
    number: u64,
    bytes: Vec<u8>,
}

impl Pages {
    /// The page that begins at `offset`, of at most `room` bytes; if there is none, the first of a new snapshot for connection `asked_by`.
    pub(in crate::target) fn page(
        &mut self,
        book: &Book,
        asked_by: u64,
        offset: u32,
        room: usize,
    ) -> (Status, Vec<u8>) {
        let too_large = |what: &str| (Status::Rejected(Rejection::TooLarge), what.into());
        let Some(room) = room.checked_sub(PageHead::SIZE).filter(|room| *room > 0) else {
            return too_large("answers of this connection are too small for what was counted");
        };
        let mut offset = offset as usize;
        if offset == 0 || offset >= self.bytes.len() {
            offset = 0;
            let mut stats = book.snapshot(asked_by);
            stats.sources.truncate(MAX_LISTED);
            stats.ifuncs.truncate(MAX_LISTED);
            let Ok(bytes) = stats.encode() else {
                return (Status::Rejected(Rejection::Resources), Vec::new());
            };
            if bytes.len() > MAX_BYTES {
                return too_large("what was counted is too much to be told");
            }
            self.bytes = bytes;
            self.number = book.next_snapshot();
        }
        let part = &self.bytes[offset..];
        let part = &part[..part.len().min(room)];
        let head = PageHead {
            version: VERSION.into(),
            reserved: 0.into(),
            total: (self.bytes.len() as u32).into(),
            offset: (offset as u32).into(),
            reserved_too: 0.into(),
            snapshot: self.number.into(),
        };
        let page = [head.as_bytes(), part].concat();
        if offset + part.len() == self.bytes.len() {
            // Read to its end.
            self.bytes = Vec::new();
        }
        (Status::Executed, page)
    }
}
