//! What a peer reported about a request, and the memory of its answers, which is bounded.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::frame::INLINE;
use ifunc_abi::status::Status;

use crate::link::Body;

/// What the peer reported about a request.
#[derive(Debug)]
pub struct Completion {
    /// Status.
    pub status: Status,
    body: Bytes,
}

/// Most answers are small.
enum Bytes {
    Inline(u8, Words),
    Heap(Answer),
}

/// Aligned, so that a completion is moved in whole words.
#[repr(align(8))]
struct Words([u8; INLINE]);

impl Completion {
    /// A copy of a completion frame's body that is small.
    ///
    /// # Panics
    /// If the body does not fit into a slot.
    #[inline(always)]
    pub(crate) fn small(status: Status, body: impl Body) -> Self {
        let len = body.len();
        let mut words = Words([0; INLINE]);
        // A copy of a length that is not constant is a call, and many answers are empty or a word.
        match len {
            0 => {}
            8 => body.copy_to(&mut words.0[..8]),
            _ => body.copy_to(&mut words.0[..len]),
        }
        let body = Bytes::Inline(len as u8, words);
        Self { status, body }
    }

    /// With an answer that was received.
    pub(crate) fn long(status: Status, answer: Answer) -> Self {
        let body = Bytes::Heap(answer);
        Self { status, body }
    }

    /// A completion without an answer.
    #[must_use]
    pub fn executed() -> Self {
        Self::small(Status::Executed, &[][..])
    }

    /// Whether it owns no memory beside its own.
    #[inline]
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.body, Bytes::Inline(..))
    }

    /// The answer, or the detail of a failure.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Bytes::Inline(len, Words(bytes)) => &bytes[..usize::from(*len)],
            Bytes::Heap(answer) => &answer.bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match self {
            Self::Inline(len, _) => usize::from(*len),
            Self::Heap(answer) => answer.bytes.len(),
        };
        write!(f, "{len} bytes")
    }
}

/// The memory of answers that were received and not dropped yet, of one connection.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    held: Arc<AtomicUsize>,
    max: usize,
}

/// An answer in memory of its own. Until it is dropped, its bytes count.
#[derive(Debug)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    counted: usize,
    held: Arc<AtomicUsize>,
}

impl AnswerMemory {
    /// What an answer takes beside its bytes.
    const OVERHEAD: usize = 64;

    pub(crate) fn new(max: usize) -> Self {
        Self {
            held: Arc::default(),
            max,
        }
    }

    /// The limit.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Copies an answer. `None`: there is no memory for it, by the limit or of the allocator.
    #[cold]
    pub(crate) fn copy(&self, body: impl Body) -> Option<Answer> {
        let counted = body.len().saturating_add(Self::OVERHEAD);
        let held = self.held.load(Ordering::Relaxed);
        if held.checked_add(counted)? > self.max {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(body.len()).ok()?;
        body.append_to(&mut bytes);
        // Only the connection adds, under its driver's lock; answers are dropped anywhere.
        self.held.fetch_add(counted, Ordering::Relaxed);
        let held = Arc::clone(&self.held);
        Some(Answer { bytes, counted, held })
    }
}

impl AnswerMemory {
    /// An answer without bytes, for [`append`](Self::append).
    pub(crate) fn begin(&self) -> Answer {
        let held = Arc::clone(&self.held);
        Answer {
            bytes: Vec::new(),
            counted: 0,
            held,
        }
    }

    /// Appends a part of an answer of `total` bytes. Memory grows with the bytes that arrived, not with the length that the peer
    /// announced; doubling bounds the copies of a long answer. `None`: there is no memory for it, by the limit or of the allocator.
    pub(crate) fn append(&self, answer: &mut Answer, part: impl Body, total: usize) -> Option<()> {
        let end = answer.bytes.len().checked_add(part.len())?;
        if end > answer.bytes.capacity() {
            let capacity = end.max(answer.bytes.capacity().saturating_mul(2).min(total));
            let counted = capacity.saturating_add(Self::OVERHEAD);
            let others = self.held.load(Ordering::Relaxed).saturating_sub(answer.counted);
            if others.checked_add(counted)? > self.max {
                return None;
            }
            answer
                .bytes
                .try_reserve_exact(capacity - answer.bytes.len())
                .ok()?;
            // Only the connection adds, under its driver's lock; answers are dropped anywhere.
            self.held.fetch_add(counted - answer.counted, Ordering::Relaxed);
            answer.counted = counted;
        }
        part.append_to(&mut answer.bytes);
        Some(())
    }
}

impl Answer {
    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, which do not count any longer.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.held.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_until_they_are_dropped() {
        let memory = AnswerMemory::new(1000);
        let first = memory.copy(&[1; 800][..]).unwrap();
        assert!(memory.copy(&[2; 100][..]).is_none());
        let completion = Completion::long(Status::Executed, first);
        assert_eq!(completion.bytes(), [1; 800]);
        drop(completion);
        assert_eq!(memory.copy(&[2; 936][..]).unwrap().into_bytes(), [2; 936]);
        assert!(memory.copy(&[2; 937][..]).is_none());
    }

    #[test]
    fn an_answer_in_parts_counts_what_it_has_allocated() {
        let memory = AnswerMemory::new(1000);
        assert_eq!(memory.max(), 1000);
        let held = || memory.held.load(Ordering::Relaxed);
        let other = memory.copy(&[1; 100][..]).unwrap();
        assert_eq!((other.len(), held()), (100, 164));
        let mut answer = memory.begin();
        let mut counts = Vec::new();
        for _ in 0..6 {
            memory.append(&mut answer, &[7; 50][..], 320).unwrap();
            counts.push(held() - 164);
        }
        // It doubles, up to the whole.
        assert_eq!(counts, [50, 100, 200, 200, 320, 320].map(|bytes| bytes + 64));
        memory.append(&mut answer, &[7; 20][..], 320).unwrap();
        assert_eq!((answer.len(), held()), (320, 164 + 384));
        drop(other);
        assert_eq!(held(), 384);
        // A second one has 616 bytes, with what counts beside.
        let mut second = memory.begin();
        assert!(memory.append(&mut second, &[8; 553][..], 553).is_none());
        memory.append(&mut second, &[8; 552][..], 552).unwrap();
        assert_eq!(held(), 1000);
        assert_eq!(answer.into_bytes(), [7; 320]);
        assert_eq!(held(), 616);
        drop(second);
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_completion_is_small_if_it_fits_into_a_slot() {
        let small = Completion::small(Status::Executed, &[3; INLINE][..]);
        assert!(small.is_small() && small.bytes() == [3; INLINE]);
        assert!(Completion::executed().is_small() && Completion::executed().bytes().is_empty());
        let long = AnswerMemory::new(1000).copy(&[3; INLINE][..]).unwrap();
        assert!(!Completion::long(Status::Executed, long).is_small());
    }
}
