//! Completions that travel together: what became of the entries of batches, until there is room to say it.

use ifunc_abi::batch::EntryHead;
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;
use zerocopy::IntoBytes;

use ifunc_proto::buffer::AlignedBuffer;

/// From how many bytes on nothing is added. A turn's share of small answers is less.
const FULL: usize = 8 << 10;

/// The body of the next `Completions`, in memory of the target's own: no more than [`FULL`] bytes, and one answer.
pub(super) struct Gathered {
    /// Entries as they travel, and behind them room for one more.
    memory: AlignedBuffer,
    /// Bytes of entries.
    len: usize,
    /// The last one, if it does not fit into one frame with those before it.
    alone: Option<Alone>,
    /// Largest body of a frame.
    max_body: usize,
    /// Longest answer, or reason why there is none.
    room: usize,
}

/// A completion that goes by itself.
#[derive(Clone, Copy)]
struct Alone {
    status: Status,
    token: u64,
    /// Where its body stands.
    at: usize,
    len: usize,
}

impl Gathered {
    pub(super) fn new(max_body: usize, room: usize) -> Self {
        Self {
            memory: AlignedBuffer::default(),
            len: 0,
            alone: None,
            max_body,
            room,
        }
    }

    /// Whether something must be sent before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.alone.is_some() || self.len >= FULL.min(self.max_body)
    }

    /// Where the body of the next one is written, before it is [`push`](Self::push)ed.
    pub(super) fn room(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_full(), "sent first");
        let at = self.len + EntryHead::SIZE;
        // As long for every entry: what is longer than all that came before is filled with zeros.
        self.memory
            .resize((FULL + EntryHead::SIZE + self.room).next_multiple_of(64));
        &mut self.memory.as_mut_slice()[at..][..self.room]
    }

    /// Adds what [`room`](Self::room) holds in its first `len` bytes.
    pub(super) fn push(&mut self, token: u64, status: Status, len: usize) {
        let at = self.len + EntryHead::SIZE;
        let end = EntryHead::padded_len(len).map(|room| self.len + room);
        let Some(end) = end.filter(|&end| end <= self.max_body) else {
            self.alone = Some(Alone {
                status,
                token,
                at,
                len,
            });
            return;
        };
        let memory = self.memory.as_mut_slice();
        let head = EntryHead::new(status.code(), len as u32, token);
        memory[self.len..at].copy_from_slice(head.as_bytes());
        memory[at + len..end].fill(0);
        self.len = end;
    }

    /// What is sent next.
    pub(super) fn next(&self) -> Option<(Header, &[u8])> {
        if self.len > 0 {
            let header = Header::new(Kind::Completions, 0, 0);
            return Some((header, &self.memory.as_slice()[..self.len]));
        }
        self.alone.map(|alone| {
            let header = Header::new(Kind::Completion, alone.status.code(), alone.token);
            (header, &self.memory.as_slice()[alone.at..][..alone.len])
        })
    }

    /// [`next`](Self::next) was sent.
    pub(super) fn sent(&mut self) {
        if self.len > 0 {
            self.len = 0;
        } else {
            self.alone = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(gathered: &mut Gathered, token: u64, body: &[u8]) {
        gathered.room().fill(0xa5);
        gathered.room()[..body.len()].copy_from_slice(body);
        gathered.push(token, Status::Executed, body.len());
    }

    #[test]
    fn small_ones_go_together_and_a_large_one_behind_them_by_itself() {
        let mut gathered = Gathered::new(64, 60);
        push(&mut gathered, 1, b"abc");
        push(&mut gathered, 2, b"");
        assert!(!gathered.is_full());
        push(&mut gathered, 3, &[7; 20]);
        assert!(gathered.is_full());
        let (header, body) = gathered.next().unwrap();
        assert_eq!(header, Header::new(Kind::Completions, 0, 0));
        let mut expected = EntryHead::new(Status::Executed.code(), 3, 1).as_bytes().to_vec();
        expected.extend_from_slice(b"abc\0\0\0\0\0");
        expected.extend_from_slice(EntryHead::new(Status::Executed.code(), 0, 2).as_bytes());
        assert_eq!(body, expected);
        gathered.sent();
        let (header, body) = gathered.next().unwrap();
        assert_eq!(header, Header::new(Kind::Completion, Status::Executed.code(), 3));
        assert_eq!(body, [7; 20]);
        gathered.sent();
        assert!(gathered.next().is_none());
        // One that no frame holds together with a head.
        push(&mut gathered, 4, &[8; 60]);
        assert_eq!(gathered.next().unwrap().0.kind, Kind::Completion);
    }

    #[test]
    fn holds_so_much_and_one_answer() {
        let mut gathered = Gathered::new(1 << 20, 100_000);
        let mut count = 0;
        while !gathered.is_full() {
            push(&mut gathered, count, &[1; 1000]);
            count += 1;
        }
        assert_eq!(count, 9);
        gathered.sent();
        push(&mut gathered, 0, &[1; 1]);
        push(&mut gathered, 1, &[1; 100_000]);
        let (header, body) = gathered.next().unwrap();
        assert_eq!((header.kind, body.len()), (Kind::Completions, 24 + 16 + 100_000));
        assert!(gathered.is_full());
        assert!(gathered.memory.len() < FULL + 100_000 + 128);
    }
}
