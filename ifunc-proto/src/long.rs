//! Answers that are larger than a frame, which travel in fragments.

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::refusal::AnswerBytes;
use ifunc_abi::status::{Failure, Status};

use crate::link::{LinkError, Outbound};

/// Most bytes that are sent at a time: other connections then have their turn.
const TURN: usize = 4 << 20;

/// A reply that waits to be sent.
#[derive(Debug)]
pub(crate) enum Owed {
    /// In one frame.
    Frame(Header, Vec<u8>),
    /// The answer of the call with this token.
    Long(u64, Box<dyn AnswerBytes>),
}

impl Owed {
    /// The failure of a call whose answer is not sent.
    #[cold]
    pub(crate) fn failed(token: u64, why: String) -> Self {
        let status = Status::Failed(Failure::Answer).code();
        Self::Frame(Header::new(Kind::Completion, status, token), why.into_bytes())
    }

    /// Length of the body of its next frame.
    pub(crate) fn next_len(&self, max_body: usize) -> usize {
        match self {
            Self::Frame(_, body) => body.len(),
            Self::Long(_, answer) => answer.bytes().len().min(max_body),
        }
    }
}

/// A long answer that is being sent.
#[derive(Debug)]
pub(crate) struct Long {
    token: u64,
    answer: Box<dyn AnswerBytes>,
    sent: usize,
}

/// How far a long answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Part,
}

impl Long {
    pub(crate) fn new(token: u64, answer: Box<dyn AnswerBytes>) -> Self {
        Self {
            token,
            answer,
            sent: 0,
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Bytes that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Length of the body of the next frame.
    pub(crate) fn next_len(&self, max_body: usize) -> usize {
        (self.answer.bytes().len() - self.sent).min(max_body)
    }

    /// Sends as many fragments as the window admits, and as the turn has time for.
    pub(crate) fn send(&mut self, tx: &mut impl Outbound) -> Result<Sent, LinkError> {
        let Self { token, answer, sent } = self;
        let bytes = answer.bytes();
        let end = sent.saturating_add(TURN);
        loop {
            let left = &bytes[*sent..];
            let len = left.len().min(tx.max_body());
            let Some(memory) = tx.reserve(len, 8)? else {
                return Ok(Sent::Part);
            };
            memory[..len].copy_from_slice(&left[..len]);
            if len == left.len() {
                let flags = if *sent > 0 {
                    FrameFlags::ASSEMBLED
                } else {
                    FrameFlags::NONE
                };
                let header = Header::new(Kind::Completion, Status::Executed.code(), *token);
                tx.commit(Header { flags, ..header }, len);
                return Ok(Sent::All);
            }
            let header = Header::new(Kind::AnswerFragment, bytes.len() as u32, *token);
            tx.commit(header, len);
            *sent += len;
            failpoint!("target.answer.fragment");
            if *sent >= end {
                return Ok(Sent::Part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Wire;

    #[test]
    fn an_answer_is_sent_in_fragments_a_turn_at_a_time() {
        const PART: usize = 1 << 20;
        let answer: Vec<u8> = (0..9 * PART + 5).map(|byte| (byte / 1000) as u8).collect();
        let mut tx = Wire::new(PART, usize::MAX);
        let owed = Owed::Long(7, Box::new(answer.clone()));
        assert_eq!(
            (owed.next_len(PART), owed.next_len(1 << 30)),
            (PART, answer.len())
        );
        let mut long = Long::new(7, Box::new(answer.clone()));
        assert_eq!((long.token(), long.sent(), long.next_len(PART)), (7, 0, PART));
        for turn in [1, 2] {
            assert_eq!(long.send(&mut tx), Ok(Sent::Part));
            assert_eq!((long.sent(), tx.frames.len()), (turn * TURN, turn * 4));
        }
        // The window closes before the last fragment.
        tx.credits = 1;
        assert_eq!(long.send(&mut tx), Ok(Sent::Part));
        assert_eq!((long.sent(), long.next_len(PART)), (9 * PART, 5));
        tx.credits = 1;
        assert_eq!(long.send(&mut tx), Ok(Sent::All));
        let fragment = Header::new(Kind::AnswerFragment, answer.len() as u32, 7);
        let last = Header {
            flags: FrameFlags::ASSEMBLED,
            ..Header::new(Kind::Completion, Status::Executed.code(), 7)
        };
        let headers: Vec<Header> = tx.frames.iter().map(|(header, _)| *header).collect();
        assert_eq!(headers[..9], [fragment; 9]);
        assert_eq!(headers[9..], [last]);
        let bytes: Vec<u8> = tx.frames.into_iter().flat_map(|(_, body)| body).collect();
        assert!(bytes == answer);
    }

    #[test]
    fn an_answer_that_fits_into_a_frame_is_a_completion_like_others() {
        let mut tx = Wire::new(8, 1);
        let mut long = Long::new(3, Box::new(b"12345678".to_vec()));
        assert_eq!(long.send(&mut tx), Ok(Sent::All));
        let header = Header::new(Kind::Completion, Status::Executed.code(), 3);
        assert_eq!(tx.frames, [(header, b"12345678".to_vec())]);
        tx.error = Some(LinkError::Closed);
        assert_eq!(long.send(&mut tx), Err(LinkError::Closed));
    }

    #[test]
    fn a_failure_takes_its_answer_s_place() {
        let owed = Owed::failed(9, "too long".into());
        assert_eq!(owed.next_len(3), 8);
        let Owed::Frame(header, body) = owed else {
            panic!("{owed:?}");
        };
        let status = Status::Failed(Failure::Answer).code();
        assert_eq!(header, Header::new(Kind::Completion, status, 9));
        assert_eq!(body, b"too long");
    }
}
