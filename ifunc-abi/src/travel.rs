//! Invocations that travel on: what accompanies an invocation from node to node, and the frames by which nodes reply,
//! end scopes and report lost nodes.
//!
//! A *node* is a process that serves in a group and has a number there. An invocation may *send* others and may
//! *forward* itself: then another invocation, on another node, takes over the obligation to answer. The first node of a
//! call holds a *slot* for it, and each later node replies straight to that slot.
//!
//! | frame | handle | token | body |
//! |---|---|---|---|
//! | [`Travel`](crate::frame::Kind::Travel) | of the image | of the completion, or 0 | [`TravelHead`], payload |
//! | [`Finish`](crate::frame::Kind::Finish) | number of the scope | of the completion | – |
//! | [`Grant`](crate::frame::Kind::Grant) | number of partial answers | of the call | – |
//! | [`Cancel`](crate::frame::Kind::Cancel) | 0 | of the call | – |
//! | [`Partial`](crate::frame::Kind::Partial) | number of the partial answer, from 0 | of the call | partial answer |
//! | [`Reply`](crate::frame::Kind::Reply) | status | nonce of the slot | [`ReplyHead`], answer or detail |
//! | [`Weights`](crate::frame::Kind::Weights) | 0 | 0 | for each scope a [`ReturnHead`] and a [`ScopeReport`] |
//! | [`NodesLost`](crate::frame::Kind::NodesLost) | 0 | 0 | [`LostNode`]s |
//! | [`Window`](crate::frame::Kind::Window) | 0 asks, 1 grants | nonce of the slot | [`WindowHead`] |
//! | [`Bounce`](crate::frame::Kind::Bounce) | the unknown node | 0 | [`TravelHead`] of the invocation |
//!
//! A source sends `Travel`, `Finish`, `Grant` and `Cancel` to its target and receives `Partial` from it; `Travel` and the others
//! travel between nodes. A completion that another node caused has the flag
//! [`RELAYED`](crate::frame::FrameFlags::RELAYED): its body begins with that node's number.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::BODY_ALIGN;

/// The number of no node.
pub const NO_NODE: u32 = u32::MAX;
/// A deadline that never passes.
pub const NO_DEADLINE: u64 = u64::MAX;
/// [`TravelHead::stream_next`] of a call that takes one answer.
pub const NOT_STREAMED: u32 = u32::MAX;

/// A slot or a scope of a node.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct SlotRef {
    /// The node that holds it; [`NO_NODE`]: a source's scope on its own connection.
    pub node: U32,
    /// Its index there. Of a source's scope: the number that the source chose.
    pub slot: U32,
    /// Tells it from earlier users of the index; 0: there is no slot or scope.
    pub nonce: U64,
}

impl SlotRef {
    /// No slot.
    pub const NONE: Self = Self {
        node: U32::MAX_VALUE,
        slot: U32::ZERO,
        nonce: U64::ZERO,
    };

    /// A reference.
    #[must_use]
    pub const fn new(node: u32, slot: u32, nonce: u64) -> Self {
        Self {
            node: U32::new(node),
            slot: U32::new(slot),
            nonce: U64::new(nonce),
        }
    }

    /// The scope to which a source gave this number, on its connection.
    #[must_use]
    pub const fn scope_of_source(number: u32) -> Self {
        Self::new(NO_NODE, number, 1)
    }

    /// Whether it names a slot or a scope.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.nonce.get() != 0
    }
}

/// What accompanies an invocation that may travel. It precedes the payload, which is therefore aligned as the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TravelHead {
    /// The slot that awaits the answer; none: a completion over this link ends the call, or there is no obligation.
    pub reply_to: SlotRef,
    /// The scope that ends after this invocation; none: it belongs to no scope.
    pub scope: SlotRef,
    /// The part of the scope's weight that this invocation holds; 0 from a source, whose target issues it.
    pub weight: U64,
    /// Nanoseconds until the call's deadline; [`NO_DEADLINE`].
    pub deadline: U64,
    /// How many nodes forwarded or sent before; 0 from a source.
    pub hops: U16,
    /// Most hops.
    pub hop_limit: U16,
    /// Length of the longest answer that the slot accepts.
    pub max_answer: U32,
    /// Number of the next partial answer; [`NOT_STREAMED`]: the call takes one answer.
    pub stream_next: U32,
    /// Partial answers that may be sent before the window is closed.
    pub stream_window: U32,
}

const _: () = assert!(TravelHead::SIZE == BODY_ALIGN);

impl TravelHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// The head of a source's invocation: no scope, no deadline, one answer.
    #[must_use]
    pub const fn of_source(hop_limit: u16) -> Self {
        Self {
            reply_to: SlotRef::NONE,
            scope: SlotRef::NONE,
            weight: U64::ZERO,
            deadline: U64::MAX_VALUE,
            hops: U16::ZERO,
            hop_limit: U16::new(hop_limit),
            max_answer: U32::MAX_VALUE,
            stream_next: U32::MAX_VALUE,
            stream_window: U32::ZERO,
        }
    }

    /// Whether a source sent it. Over the link between two nodes come invocations of both: those of nodes that were sent or
    /// forwarded there, and those of sources of the process of a node. A node that states this wrongly gets what a source gets.
    #[must_use]
    pub const fn is_of_source(&self) -> bool {
        self.hops.get() == 0
    }

    /// Whether the call takes partial answers.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.stream_next.get() != NOT_STREAMED
    }

    /// The head at the begin of a `Travel` body; `None`: the body is shorter.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        Some(Self::read_from_prefix(body).ok()?.0)
    }
}

/// Head of a `Reply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReplyHead {
    /// The slot.
    pub slot: U32,
    /// The node that replies.
    pub node: U32,
    /// Number of the partial answer; of the last reply: how many partial answers precede it.
    pub index: U32,
    /// 1: it ends the call; 0: a partial answer.
    pub is_last: U32,
}

impl ReplyHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// Splits a `Reply` body. `None`: it is malformed.
    #[must_use]
    pub fn split(body: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = Self::read_from_prefix(body).ok()?;
        (head.is_last.get() <= 1).then_some((head, rest))
    }
}

/// Head of what a node returns to one scope. A [`ScopeReport`] follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReturnHead {
    /// The scope's index at the node that receives this.
    pub scope: U32,
    /// Length of the report in bytes.
    pub len: U32,
    /// The scope's nonce.
    pub nonce: U64,
    /// The weight that is returned.
    pub weight: U64,
}

impl ReturnHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();
}

/// Head of a `Window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WindowHead {
    /// The slot of the stream.
    pub slot: U32,
    /// Asking: number of the next partial answer. Granting: how many partial answers may follow.
    pub count: U32,
    /// Number of the invocation that waits, at the node that asks.
    pub waiter: U64,
}

impl WindowHead {
    /// The whole body of a `Window`. `None`: it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        Self::read_from_bytes(body).ok()
    }
}

/// A node that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LostNode {
    /// Its number.
    pub node: U32,
    /// Zero.
    pub reserved: U32,
    /// Its epoch.
    pub epoch: U64,
}

impl LostNode {
    /// Most entries of a `NodesLost` frame.
    pub const MAX: usize = 64;

    /// An entry.
    #[must_use]
    pub const fn new(node: u32, epoch: u64) -> Self {
        Self {
            node: U32::new(node),
            reserved: U32::ZERO,
            epoch: U64::new(epoch),
        }
    }

    /// The entries of a `NodesLost` body. `None`: it is malformed.
    #[must_use]
    pub fn parse_all(body: &[u8]) -> Option<&[Self]> {
        let entries = <[Self]>::ref_from_bytes(body).ok()?;
        (entries.len() <= Self::MAX).then_some(entries)
    }
}

/// Why an invocation could not send, forward or reply. Code 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TravelError {
    /// The outbox for other nodes is full, or as many scopes or slots are open as the node allows.
    Busy = 1,
    /// The group has no such node, or the node is lost.
    NoNode = 2,
    /// The target is no node of a group.
    NoGroup = 3,
    /// The invocation made as many hops as it may.
    HopLimit = 4,
    /// The payload or the partial answer exceeds a limit.
    TooLarge = 5,
    /// The image has no such entry.
    NoEntry = 6,
    /// The entry answers with another type than the call expects.
    AnswerType = 7,
    /// The invocation was forwarded or answered before.
    Ended = 8,
    /// The source has not taken enough partial answers yet, or takes one answer only.
    Window = 9,
}

impl TravelError {
    /// Every error, in order of its code.
    pub const ALL: [Self; 9] = [
        Self::Busy,
        Self::NoNode,
        Self::NoGroup,
        Self::HopLimit,
        Self::TooLarge,
        Self::NoEntry,
        Self::AnswerType,
        Self::Ended,
        Self::Window,
    ];

    /// The error of a code; `None` for 0, and for a code that this version does not define.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1..=9 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// The code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for TravelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the node's outbox is full",
            Self::NoNode => "the group has no such node",
            Self::NoGroup => "the target is not a node of a group",
            Self::HopLimit => "the hop limit is reached",
            Self::TooLarge => "the payload exceeds a limit",
            Self::NoEntry => "the image has no such entry",
            Self::AnswerType => "the entry has another type of answers",
            Self::Ended => "the invocation was forwarded or answered before",
            Self::Window => "the stream's window is closed",
        })
    }
}

impl core::error::Error for TravelError {}

#[cfg(feature = "alloc")]
mod report;
#[cfg(feature = "alloc")]
pub use report::{ScopeFailure, ScopeReport};

#[cfg(test)]
mod tests {
    extern crate std;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_have_codes() {
        for (index, error) in TravelError::ALL.into_iter().enumerate() {
            assert_eq!(error.code() as usize, index + 1);
            assert_eq!(TravelError::from_code(error.code()), Some(error));
        }
        assert_eq!(TravelError::from_code(0), None);
        assert_eq!(TravelError::from_code(10), None);
    }

    #[test]
    fn heads_have_their_offsets() {
        let head = TravelHead {
            reply_to: SlotRef::new(1, 2, 3),
            stream_window: U32::new(4),
            ..TravelHead::of_source(5)
        };
        let bytes = head.as_bytes();
        assert_eq!(bytes[..16], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[50..52], [5, 0]);
        assert_eq!(bytes[60..], [4, 0, 0, 0]);
        assert_eq!(TravelHead::parse(bytes), Some(head));
        assert_eq!(TravelHead::parse(&bytes[1..]), None);
        assert!(head.reply_to.is_some() && !head.scope.is_some() && !head.is_streamed());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = TravelHead::parse(&bytes);
            let _ = WindowHead::parse(&bytes);
            if let Some((head, rest)) = ReplyHead::split(&bytes) {
                prop_assert_eq!([head.as_bytes(), rest].concat(), bytes.clone());
            }
            if let Some(entries) = LostNode::parse_all(&bytes) {
                prop_assert_eq!(entries.as_bytes(), &bytes);
            }
        }
    }

    #[test]
    fn heads_state_what_they_are() {
        let head = TravelHead::of_source(3);
        assert!(head.is_of_source() && !head.is_streamed());
        let sent = TravelHead {
            hops: U16::new(1),
            stream_next: U32::new(0),
            ..head
        };
        assert!(!sent.is_of_source() && sent.is_streamed());
        assert!(SlotRef::scope_of_source(1).is_some() && !SlotRef::NONE.is_some());
        let window = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        let expected = WindowHead {
            slot: U32::new(1),
            count: U32::new(2),
            waiter: U64::new(3),
        };
        assert_eq!(WindowHead::parse(&window), Some(expected));
        assert_eq!(WindowHead::parse(&window[1..]), None);
        for (is_last, is_valid) in [(0, true), (1, true), (2, false)] {
            let mut reply = [0; 17];
            reply[12] = is_last;
            let split = ReplyHead::split(&reply).map(|(head, rest)| (head.is_last.get(), rest.len()));
            assert_eq!(split, is_valid.then_some((is_last.into(), 1)));
        }
        let lost = [LostNode::new(4, 5); LostNode::MAX + 1];
        assert_eq!(
            lost[0].as_bytes(),
            [4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
        );
        let parsed = |count: usize| LostNode::parse_all(lost[..count].as_bytes()).map(<[_]>::len);
        assert_eq!((parsed(0), parsed(64), parsed(65)), (Some(0), Some(64), None));
        assert_eq!(LostNode::parse_all(&lost[0].as_bytes()[..15]), None);
    }
}
