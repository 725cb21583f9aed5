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
    Inline(u8, Small),
    Heap(Answer),
}

/// Room for an answer that fits into a slot of a ring. Aligned, so that it is moved in whole words.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub(crate) struct Small([u8; INLINE]);

impl Small {
    pub(crate) const EMPTY: Self = Self([0; INLINE]);

    /// Copies a body and returns its length.
    ///
    /// # Panics
    /// If it does not fit.
    #[inline(always)]
    pub(crate) fn set(&mut self, body: impl Body) -> u8 {
        let len = body.len();
        // A copy of a length that is not constant is a call, and many answers are empty or a word.
        match len {
            0 => {}
            8 => body.copy_to(&mut self.0[..8]),
            _ => body.copy_to(&mut self.0[..len]),
        }
        len as u8
    }

    /// The answer, of the length that [`set`](Self::set) returned.
    #[inline(always)]
    pub(crate) fn get(&self, len: u8) -> &[u8] {
        &self.0[..usize::from(len)]
    }
}

impl Completion {
    /// A copy of a completion frame's body that is small.
    ///
    /// # Panics
    /// If the body does not fit into a slot.
    pub(crate) fn small(status: Status, body: impl Body) -> Self {
        let mut small = Small::EMPTY;
        let len = small.set(body);
        Self::of_slot(status, len, &small)
    }

    /// With an answer that a slot of the table of calls has.
    #[inline(always)]
    pub(crate) fn of_slot(status: Status, len: u8, small: &Small) -> Self {
        let body = Bytes::Inline(len, *small);
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

    /// Whether it lies in one piece, which owns no other memory.
    #[inline]
    #[must_use]
    pub fn is_short(&self) -> bool {
        matches!(self.body, Bytes::Inline(..))
    }

    /// The answer, or the detail of a failure.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Bytes::Inline(len, small) => small.get(*len),
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
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

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
        assert_eq!(small.bytes(), [3; INLINE]);
        assert!(Completion::executed().bytes().is_empty());
        let mut reused = Small::EMPTY;
        for len in [INLINE, 8, 0, 3] {
            let body = vec![len as u8; len];
            let set = reused.set(&body[..]);
            assert_eq!(reused.get(set), body);
        }
    }
}
