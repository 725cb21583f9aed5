//! The ring of one direction: a slot per frame, and a data ring for the bodies that do not fit into it.
//!
//! ```text
//! slot (64 bytes)   +0 commit word: sequence << 32 | length    stored last with Release, loaded once with Acquire
//!                   +8 word 1      +16 word 2      +24 inline body (at most 40 bytes, alignment at most 8)
//! data ring         mapped twice back to back: a body that begins in the first mapping may run on into the second
//! ```
//!
//! Slot `n % slots` holds frame number `n` (from 0), whose sequence is `n + 1`: zeroed memory and old laps
//! never match, so that the consumer never clears anything, and as only this offset is ever a commit word, no
//! body looks like one. Where a body lies is said nowhere: both sides advance a cursor by the length of each
//! body that is not inline, rounded up to [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN).
//!
//! The consumer publishes what it released (slots, bytes) every quarter lap and when it has nothing left to
//! do; the producer looks only when it believes the ring to be full. A side that goes to sleep says so in a
//! flag which the other one looks at, after a barrier, whenever it published something (see
//! [`barrier`](super::barrier)).
//!
//! Neither side trusts the other: words are copied out of shared memory once and judged as copies, positions
//! are computed from this side's own counters.

pub(super) mod consumer;
pub(super) mod producer;
pub(super) mod shared;
mod stream;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
