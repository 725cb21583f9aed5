//! The ring of one direction: a slot per frame, and a data ring for the bodies that do not fit into it.
//!
//! ```text
//! slot (64 bytes)   +0 commit word: sequence << 32 | length    stored last with Release, loaded once with Acquire
//!                   +8 word 1      +16 word 2      +24 inline body (at most 40 bytes, alignment at most 8)
//! data ring         mapped twice back to back: a body that begins in the first mapping may run on into the second
//! ```
//!
//! Slot `n % slots` holds frame number `n` (from 0), whose sequence is `n + 1`. Zeroed memory and old laps never match, so the
//! consumer clears no commit word. It may overwrite the rest of what it has consumed
//! ([`line_owner`](super::line_owner)). Only this offset is ever a commit word, so no body looks like one. No message says where a
//! body lies: both sides advance a cursor by the length of each body that is not inline, rounded up to
//! [`BODY_ALIGN`].
//!
//! The consumer publishes what it released ([`window`](crate::transport::window)) every quarter lap and when no more frames have
//! arrived. The producer reads that only when it has no credit left. A side that goes to sleep announces it in a flag, which
//! the other side reads, after a barrier, whenever it published something ([`barrier`](super::barrier)).
//!
//! Neither side trusts the other: each copies words out of shared memory once, validates the copies, and computes positions
//! from its own counters.

mod consumer;
mod producer;
pub(super) mod shared;
mod staging;
mod stream;
pub(super) mod words;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use ifunc_abi::frame::BODY_ALIGN;

pub(crate) use self::consumer::Consumer;
pub(crate) use self::producer::Producer;

/// Bytes of the data ring that a body takes.
#[inline]
fn footprint(len: usize) -> u64 {
    len.next_multiple_of(BODY_ALIGN) as u64
}
