//! What a peer reports about a request, and how a request ends without a report.

use std::fmt;

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
    Heap(Vec<u8>),
}

/// Aligned, so that a completion is moved in whole words.
#[repr(align(8))]
struct Words([u8; INLINE]);

impl Completion {
    /// A copy of a completion frame's body.
    #[inline(always)]
    pub fn new(status: Status, body: impl Body) -> Self {
        let len = body.len();
        let body = if len <= INLINE {
            let mut words = Words([0; INLINE]);
            // A copy of a length that is not constant is a call, and many answers are empty.
            if len != 0 {
                body.copy_to(&mut words.0[..len]);
            }
            Bytes::Inline(len as u8, words)
        } else {
            Bytes::Heap(long(body))
        };
        Self { status, body }
    }

    /// A completion without an answer.
    #[must_use]
    pub fn executed() -> Self {
        Self::new(Status::Executed, &[][..])
    }

    /// The answer, or the detail of a failure.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Bytes::Inline(len, Words(bytes)) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    /// Of a report: the handle that it is about, and the rest as a completion. A report that is too short is about no
    /// handle.
    pub(crate) fn split_report(&self) -> (u32, Self) {
        let (handle, detail) = self.bytes().split_first_chunk().unwrap_or((&[0xff; 4], &[]));
        (u32::from_le_bytes(*handle), Self::new(self.status, detail))
    }
}

#[cold]
fn long(body: impl Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    body.append_to(&mut bytes);
    bytes
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match self {
            Self::Inline(len, _) => usize::from(*len),
            Self::Heap(bytes) => bytes.len(),
        };
        write!(f, "{len} bytes")
    }
}

/// Why a request has no completion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The link died before the request was sent: it did not run.
    #[error("not sent: {why}")]
    NotSent {
        /// Why the link died or cannot be replaced.
        why: String,
    },
    /// The link died after the request was sent: it may or may not have run.
    #[error("sent, then the link died")]
    Indeterminate,
    /// The payload exceeds the limit of the target that is connected now.
    #[error("a payload of {len} bytes, the limit is {limit}")]
    PayloadTooLarge {
        /// Length in bytes.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
    /// The image exceeds the limit of the target that is connected now.
    #[error("an image of {len} bytes, the limit is {limit}")]
    ImageTooLarge {
        /// Length in bytes.
        len: u64,
        /// The target's limit.
        limit: u64,
    },
}

impl Lost {
    /// How a request ends whose link died and that is not sent again.
    pub(crate) fn of_dead_link(was_sent: bool, why: &str) -> Self {
        if was_sent {
            Self::Indeterminate
        } else {
            Self::NotSent { why: why.to_owned() }
        }
    }
}

/// How a request ended. The error is boxed because it is rare and outcomes are moved.
pub type Outcome = Result<Completion, Box<Lost>>;
