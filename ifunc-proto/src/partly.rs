//! The answer that arrives in fragments.

use crate::completion::{Answer, AnswerMemory};
use crate::link::{Body, LinkError};

/// The answer of a call whose last part has not arrived. The parts of one answer arrive without parts of another one between.
#[derive(Debug)]
pub(crate) struct PartlyReceived {
    token: u64,
    /// Length of the whole.
    len: usize,
    received: usize,
    /// What arrived; `None`: no call waits for it, or there is no memory for it.
    kept: Option<Answer>,
}

const LENGTH: LinkError = LinkError::Malformed("parts of an answer that do not make the length they state");

impl PartlyReceived {
    /// Begins the answer of a call. `is_awaited`: the call is under way.
    pub(crate) fn new(token: u64, len: usize, is_awaited: bool, memory: &AnswerMemory) -> Self {
        Self {
            token,
            len,
            received: 0,
            kept: is_awaited.then(|| memory.begin()),
        }
    }

    /// Whether it is the answer of this call, with this length.
    pub(crate) fn is_of(&self, token: u64, len: usize) -> bool {
        (self.token, self.len) == (token, len)
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Length of the whole answer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.as_ref().map_or(0, Answer::len)
    }

    /// Keeps nothing of it: its caller dropped the call.
    pub(crate) fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// Appends a part.
    pub(crate) fn append(&mut self, part: impl Body, memory: &AnswerMemory) -> Result<(), LinkError> {
        let end = self
            .received
            .checked_add(part.len())
            .filter(|&end| end <= self.len);
        self.received = end.ok_or(LENGTH)?;
        if let Some(kept) = &mut self.kept
            && memory.append(kept, part, self.len).is_none()
        {
            self.kept = None;
        }
        Ok(())
    }

    /// The whole answer, after its last part; `None`: it was not kept.
    pub(crate) fn finish(self) -> Result<Option<Answer>, LinkError> {
        if self.received != self.len {
            return Err(LENGTH);
        }
        Ok(self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_answer_or_an_error() {
        let memory = AnswerMemory::new(1000);
        let mut partly = PartlyReceived::new(5, 6, true, &memory);
        assert!(partly.is_of(5, 6) && !partly.is_of(5, 7) && !partly.is_of(4, 6));
        assert_eq!((partly.token(), partly.len(), partly.kept()), (5, 6, 0));
        partly.append(&b"abc"[..], &memory).unwrap();
        assert_eq!(partly.kept(), 3);
        assert_eq!(partly.append(&b"defg"[..], &memory), Err(LENGTH));
        partly.append(&b"def"[..], &memory).unwrap();
        assert_eq!(partly.append(&b"g"[..], &memory), Err(LENGTH));
        let answer = partly.finish().unwrap().unwrap();
        assert_eq!(answer.into_bytes(), b"abcdef");

        let mut short = PartlyReceived::new(5, 6, true, &memory);
        short.append(&b"abcde"[..], &memory).unwrap();
        assert_eq!(short.finish().unwrap_err(), LENGTH);
    }

    #[test]
    fn what_nothing_awaits_is_counted_and_not_kept() {
        let memory = AnswerMemory::new(100);
        // No call, no memory, and a call that was dropped.
        for (is_awaited, len) in [(false, 6), (true, 60), (true, 6)] {
            let mut partly = PartlyReceived::new(5, len, is_awaited, &memory);
            partly.append(&vec![1; len - 1][..], &memory).unwrap();
            partly.drop_kept();
            assert_eq!(partly.kept(), 0);
            partly.append(&b"f"[..], &memory).unwrap();
            assert!(partly.finish().unwrap().is_none(), "{is_awaited}, {len}");
        }
    }
}
