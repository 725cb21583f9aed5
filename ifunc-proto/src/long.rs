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
