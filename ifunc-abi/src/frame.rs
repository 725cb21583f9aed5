//! Frames: the messages of a connection, in both directions.
//!
//! A frame consists of three little-endian 64-bit words and a body:
//!
//! | word | bits | meaning |
//! |---|---|---|
//! | 0 | 32–63 | sequence number: 1 for the first frame of a direction, then incremented, wrapping |
//! |   | 0–31 | length of the body in bytes |
//! | 1 | 32–63 | handle (requests), status code (completions) |
//! |   | 16–31 | reserved, zero |
//! |   | 8–15 | [`FrameFlags`] |
//! |   | 0–7 | [`Kind`] |
//! | 2 |  | token that matches a completion to its request; 0: no completion wanted |
//!
//! Word 0 is the commit word: a transport over memory stores it last. A body of at most [`INLINE`] bytes that
//! needs at most 8-byte alignment may follow the words in the frame's own cache line. Any other body starts
//! at a multiple of [`BODY_ALIGN`].
//!
//! | kind | direction | handle | token | body |
//! |---|---|---|---|---|
//! | `Exec` | → target | of the entry | of the completion, or 0 | payload |
//! | `Install` | → target | first to bind | of the completion, or 0 | [`InstallHead`], signature, [companions](CompanionHead), image |
//! | `Unbind` | → target | first of the image to release | 0 | – |
//! | `Fragment` | → target | 0 | length of the whole body | part of the body of the next `Exec` or `Install` |
//! | `Sync` | → target | 0 | of the completion | – |
//! | `Stats` | → target | offset of the page | of the completion | – |
//! | `Batch` | → target | 0 | 0 | invocations: see [`batch`](crate::batch) |
//! | `Travel`, `Finish`, `Grant`, `Cancel` | → target | | | see [`travel`](crate::travel) |
//! | `Completion` | → source | status | of the request | answer or detail |
//! | `Report` | → source | status | sequence number of the failed frame | handle (u32), then the detail |
//! | `Completions` | → source | 0 | 0 | outcomes of requests: see [`batch`](crate::batch) |
//! | `AnswerFragment` | → source | length of the whole answer | of the request | part of the answer that ends in the next `Completion` of this token |
//!
//! | `Partial` | → source | | | see [`travel`](crate::travel) |
//! | `Reply`, `Weights`, `NodesLost`, `Window`, `Bounce` | between nodes | | | see [`travel`](crate::travel) |
//!
//! An `Install` binds one handle per entry of its image, in the order of the image's table, from its own on; an `Unbind` releases
//! them. An `Install` that needs a handle of another image releases that image first.
//!
//! `Sync` completes when the target has consumed everything before it. A `Report` states why a frame without
//! a completion failed.

mod install;

pub use install::{Companion, CompanionHead, Companions, InstallBody, InstallHead, MAX_COMPANIONS};

use crate::image::MAX_ENTRIES;

/// Size of a slot in bytes: one cache line, which holds the words and an inline body.
pub const SLOT: usize = 64;
/// Size of the three words in bytes.
pub const WORDS: usize = 24;
/// Largest inline body in bytes.
pub const INLINE: usize = SLOT - WORDS;
/// Alignment in bytes of a body that is not inline; also the largest alignment that a payload may have.
pub const BODY_ALIGN: usize = 64;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Run the image bound to the handle on the payload.
    Exec = 1,
    /// Bind an image to a handle.
    Install = 2,
    /// Release a handle.
    Unbind = 3,
    /// A part of the next frame's body.
    Fragment = 4,
    /// Complete when everything before this was consumed.
    Sync = 5,
    /// Send a page of the target's counters; offset 0 takes a new snapshot. The format is in `stats`.
    Stats = 6,
    /// Many `Exec`s.
    Batch = 7,
    /// Run the image bound to the handle on the payload behind a [`TravelHead`](crate::travel::TravelHead).
    Travel = 8,
    /// Complete when everything that was sent in the scope, and everything that that sent, has ended.
    Finish = 9,
    /// The source took partial answers of a call.
    Grant = 10,
    /// The source dropped a call: the target need not await its answer.
    Cancel = 11,
    /// The outcome of a request.
    Completion = 16,
    /// The failure of a request that wanted no completion.
    Report = 17,
    /// Many `Completion`s.
    Completions = 18,
    /// From the node that answers, to the slot that awaits the answer.
    Reply = 19,
    /// A partial answer of a call.
    Partial = 20,
    /// Weights that return to their scopes.
    Weights = 21,
    /// Nodes that were lost.
    NodesLost = 22,
    /// The window of a stream between nodes.
    Window = 23,
    /// An invocation comes back to the node that sent it: the other one could not answer it.
    Bounce = 24,
    /// A part of the answer of a call. The `Completion` with its last part is [`ASSEMBLED`](FrameFlags::ASSEMBLED). No part of another
    /// answer comes between; a part of another one, or a `Completion` of this call without the flag, replaces the answer.
    AnswerFragment = 25,
}

impl Kind {
    /// The kind of a code.
    #[must_use]
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Exec,
            2 => Self::Install,
            3 => Self::Unbind,
            4 => Self::Fragment,
            5 => Self::Sync,
            6 => Self::Stats,
            7 => Self::Batch,
            8 => Self::Travel,
            9 => Self::Finish,
            10 => Self::Grant,
            11 => Self::Cancel,
            16 => Self::Completion,
            17 => Self::Report,
            18 => Self::Completions,
            19 => Self::Reply,
            20 => Self::Partial,
            21 => Self::Weights,
            22 => Self::NodesLost,
            23 => Self::Window,
            24 => Self::Bounce,
            25 => Self::AnswerFragment,
            _ => return None,
        })
    }
}

/// Flags of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The body is in the frame's own slot. The transport sets this flag.
    pub const INLINE: Self = Self(1);
    /// The body is the last part of one that began in `Fragment`s.
    pub const ASSEMBLED: Self = Self(2);
    /// The completion of an invocation that failed on another node, whose number (u32) begins the body.
    pub const RELAYED: Self = Self(4);

    /// Whether every flag of `other` is set.
    #[must_use]
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Words 1 and 2, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind.
    pub kind: Kind,
    /// Flags.
    pub flags: FrameFlags,
    /// Handle in requests, status code in completions.
    pub handle: u32,
    /// Token.
    pub token: u64,
}

/// Why a frame is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Unknown flags or non-zero reserved bits.
    #[error("unknown frame flags {0:#x}")]
    Flags(u32),
    /// The length of the body does not suit the kind.
    #[error("a frame of kind {kind:?} has a body of {len} bytes")]
    Body {
        /// Kind.
        kind: Kind,
        /// Length of its body.
        len: usize,
    },
    /// An `Install` frame states a number of entries that no image has.
    #[error("an image with {0} entries, there are 1 to {MAX_ENTRIES}")]
    Entries(u16),
    /// An `Install` frame states more companions than there may be.
    #[error("an image with {0} companions, there are at most {MAX_COMPANIONS}")]
    Companions(u16),
}

impl Header {
    /// A header without flags.
    #[must_use]
    pub const fn new(kind: Kind, handle: u32, token: u64) -> Self {
        Self {
            kind,
            flags: FrameFlags::NONE,
            handle,
            token,
        }
    }

    /// Encodes words 1 and 2.
    #[must_use]
    #[inline]
    pub const fn words(self) -> [u64; 2] {
        [
            (self.handle as u64) << 32 | (self.flags.0 as u64) << 8 | self.kind as u64,
            self.token,
        ]
    }

    /// The header of a frame of this kind that states nothing more than its handle and its token: nearly every frame is an
    /// `Exec` or a `Completion` of this form. `None` for any other.
    #[must_use]
    #[inline]
    pub const fn parse_plain(words: [u64; 2], kind: Kind) -> Option<Self> {
        let low = words[0] as u32 & !((FrameFlags::INLINE.0 as u32) << 8);
        if low != kind as u32 {
            return None;
        }
        Some(Self::new(kind, (words[0] >> 32) as u32, words[1]))
    }

    /// As [`parse_plain`](Self::parse_plain), of a frame that states that its body is in its own slot.
    #[must_use]
    #[inline]
    pub const fn parse_inline(words: [u64; 2], kind: Kind) -> Option<Self> {
        if words[0] as u32 != (FrameFlags::INLINE.0 as u32) << 8 | kind as u32 {
            return None;
        }
        Some(Self::new(kind, (words[0] >> 32) as u32, words[1]))
    }

    /// Parses words that were copied out of the transport's memory.
    ///
    /// # Errors
    /// A kind, flag or reserved bit that this version does not define.
    #[inline]
    pub const fn parse(words: [u64; 2]) -> Result<Self, FrameError> {
        let low = words[0] as u32;
        let Some(kind) = Kind::from_code(low as u8) else {
            return Err(FrameError::Kind(low as u8));
        };
        if low >> 8 > 7 {
            return Err(FrameError::Flags(low >> 8));
        }
        Ok(Self {
            kind,
            flags: FrameFlags((low >> 8) as u8),
            handle: (words[0] >> 32) as u32,
            token: words[1],
        })
    }
}

/// The commit word of a sequence number and a body's length.
#[must_use]
#[inline]
pub const fn commit_word(sequence: u32, len: u32) -> u64 {
    (sequence as u64) << 32 | len as u64
}

/// Sequence number and body length of a commit word.
#[must_use]
#[inline]
pub const fn split_commit_word(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The limits that each side reports to the other before the first frame. A side that only invokes takes answers, and no payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload in bytes.
    pub max_payload: u64,
    /// Largest image in bytes.
    pub max_image: u64,
    /// Largest answer in bytes that it gives or takes: answers of a connection are within the limits of both sides.
    pub max_answer: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_body_is_what_the_words_leave_of_a_cache_line() {
        assert_eq!((SLOT, WORDS, INLINE), (64, size_of::<[u64; 3]>(), 40));
    }

    #[test]
    fn headers_round_trip() {
        let header = Header {
            kind: Kind::Exec,
            flags: FrameFlags::ASSEMBLED,
            handle: 0xdead_beef,
            token: u64::MAX,
        };
        assert_eq!(Header::parse(header.words()), Ok(header));
        assert_eq!(Header::parse([0, 0]), Err(FrameError::Kind(0)));
        assert!(matches!(Header::parse([0x1_0001, 0]), Err(FrameError::Flags(_))));
        assert_eq!(
            Header::parse_plain(header.words(), Kind::Exec),
            None,
            "it was assembled"
        );
        assert_eq!(Header::parse_plain([0x1_0001, 0], Kind::Exec), None);
        assert_eq!(Header::parse_plain([2, 0], Kind::Exec), None);
        let inline = Header {
            flags: FrameFlags::INLINE,
            ..header
        };
        let plain = Header::new(Kind::Exec, header.handle, header.token);
        assert_eq!(Header::parse_plain(inline.words(), Kind::Exec), Some(plain));
        assert_eq!(Header::parse_plain(plain.words(), Kind::Exec), Some(plain));
        assert_eq!(Header::parse_inline(inline.words(), Kind::Exec), Some(plain));
        assert_eq!(Header::parse_inline(plain.words(), Kind::Exec), None);
        assert_eq!(
            Header::parse_inline([0x301, 0], Kind::Exec),
            None,
            "it was assembled"
        );
        assert_eq!(split_commit_word(commit_word(7, 9)), (7, 9));
    }

    #[test]
    fn words_have_their_bits() {
        let header = Header {
            kind: Kind::AnswerFragment,
            flags: FrameFlags::ASSEMBLED.union(FrameFlags::RELAYED),
            handle: 0x0102_0304,
            token: 5,
        };
        assert_eq!(header.words(), [0x0102_0304_0000_0619, 5]);
        assert_eq!(commit_word(0x0102_0304, 0x0506_0708), 0x0102_0304_0506_0708);
        assert_eq!(
            split_commit_word(0x0102_0304_0506_0708),
            (0x0102_0304, 0x0506_0708)
        );
        assert!(header.flags.contains(FrameFlags::RELAYED) && !header.flags.contains(FrameFlags::INLINE));
        assert!(!FrameFlags::RELAYED.contains(header.flags));
        assert_eq!(FrameFlags::ASSEMBLED.union(FrameFlags::ASSEMBLED).bits(), 2);
    }

    #[test]
    fn each_code_is_of_one_kind_or_of_none() {
        for code in 0..=u8::MAX {
            let is_known = matches!(code, 1..=11 | 16..=25);
            let kind = Kind::from_code(code);
            assert_eq!(kind.map(|kind| kind as u8), is_known.then_some(code), "{code}");
            let parsed = Header::parse([code.into(), 0]).map(|header| header.kind);
            assert_eq!(parsed, kind.ok_or(FrameError::Kind(code)));
        }
        for flags in 0..=u32::from(u16::MAX) {
            let parsed = Header::parse([u64::from(flags) << 8 | 1, 0]);
            match flags {
                0..=7 => assert_eq!(parsed.map(|header| u32::from(header.flags.bits())), Ok(flags)),
                _ => assert_eq!(parsed, Err(FrameError::Flags(flags))),
            }
        }
    }
}
