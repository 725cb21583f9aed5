//! Completions that travel in one frame: those of the entries of batches.

use ifunc_abi::batch::EntryHead;
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;
use zerocopy::IntoBytes;

use crate::buffer::AlignedBuffer;

/// Length from which on no completion is added. A poll's share of small answers is shorter.
const FULL: usize = 8 << 10;

/// The body of the next `Completions` frame, in private memory: at most [`FULL`] bytes and one answer.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Encoded entries, followed by the capacity for one more.
    memory: AlignedBuffer,
    /// Bytes of encoded entries.
    len: usize,
    /// The last completion, if it does not fit into one frame with those before it.
    alone: Option<Alone>,
    /// Largest body of a frame.
    max_body: usize,
    /// Longest body of a completion.
    max_reply: usize,
}

/// A completion that needs a frame of its own.
#[derive(Clone, Copy, Debug)]
struct Alone {
    status: Status,
    token: u64,
    /// Offset of its body.
    at: usize,
    len: usize,
}

impl Gathered {
    pub(crate) fn new(max_body: usize, max_reply: usize) -> Self {
        Self {
            memory: AlignedBuffer::default(),
            len: 0,
            alone: None,
            max_body,
            max_reply,
        }
    }

    /// Whether a frame must be sent before the next completion is added.
    pub(crate) fn is_full(&self) -> bool {
        self.alone.is_some() || self.len >= FULL.min(self.max_body)
    }

    /// Memory for the body of the next completion, which [`push`](Self::push) adds.
    pub(crate) fn reserve(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_full(), "a full frame is sent first");
        let at = self.len + EntryHead::SIZE;
        // The same size for every entry: a buffer that grows is filled with zeros.
        self.memory
            .resize((FULL + EntryHead::SIZE + self.max_reply).next_multiple_of(64));
        &mut self.memory.as_mut_slice()[at..][..self.max_reply]
    }

    /// Adds a completion whose body is the first `len` bytes of [`reserve`](Self::reserve).
    pub(crate) fn push(&mut self, token: u64, status: Status, len: usize) {
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

    /// The next frame to send.
    pub(crate) fn next(&self) -> Option<(Header, &[u8])> {
        if self.len > 0 {
            let header = Header::new(Kind::Completions, 0, 0);
            return Some((header, &self.memory.as_slice()[..self.len]));
        }
        self.alone.map(|alone| {
            let header = Header::new(Kind::Completion, alone.status.code(), alone.token);
            (header, &self.memory.as_slice()[alone.at..][..alone.len])
        })
    }

    /// Removes the frame that [`next`](Self::next) returned.
    pub(crate) fn sent(&mut self) {
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
        gathered.reserve().fill(0xa5);
        gathered.reserve()[..body.len()].copy_from_slice(body);
        gathered.push(token, Status::Executed, body.len());
    }

    #[test]
    fn small_completions_share_a_frame_and_a_large_one_follows_in_its_own() {
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
        // Its head and body together exceed a frame.
        push(&mut gathered, 4, &[8; 60]);
        assert_eq!(gathered.next().unwrap().0.kind, Kind::Completion);
    }

    #[test]
    fn memory_is_bounded_by_a_full_frame_and_one_answer() {
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
