//! Ready-made ifuncs over the memory of a target: what applications otherwise build of one-sided gets, puts and atomics, with
//! one message where those take one or two per word.
//!
//! They are ordinary ifuncs, so any source may send them to any target that lends its memory, and the target need not know them.
//! A target lends words by [`Words`], a table that is cut over several nodes by [`Table`], and bytes by [`Bytes`]:
//!
//! ```
//! use ifunc_ops::{Words, fetch_add, FetchAdd};
//!
//! #[derive(ifunc::Opaque)]
//! #[opaque(interfaces)]
//! pub struct Counters(Vec<u64>);
//!
//! #[ifunc::export]
//! impl Words for Counters {
//!     fn words(&mut self) -> &mut [u64] {
//!         &mut self.0
//!     }
//! }
//! # fn main() {
//! // A target that serves `Counters` runs all ifuncs over words. Here, one is called as a function.
//! let mut counters = Counters(vec![10, 20]);
//! assert_eq!(fetch_add(FetchAdd { index: 1, value: 5 }, &mut counters), 20);
//! assert_eq!(counters.0, [10, 25]);
//! # }
//! ```
//!
//! # Cost
//!
//! In messages, for `n` words. The code travels once per connection. One-sided operations wait for an answer each, unless they
//! are independent of each other; a chase never is.
//!
//! | ifunc | over | payload | answer | messages | one-sided |
//! |---|---|---|---|---|---|
//! | [`chase`](fn@chase) | [`Table`] | 16 bytes | 8 bytes | a forward for each change of the node, and 2 | 2 n |
//! | [`gather`](fn@gather) | [`Words`] | 8 bytes per word | 8 bytes per word | 2 | 2 n |
//! | [`scatter`](fn@scatter) | [`Words`] | 16 bytes per word | 8 bytes | 2; sent without an answer, 1 | n, and a flush |
//! | [`fetch_add`](fn@fetch_add) | [`Words`] | 16 bytes | 8 bytes | 2; sent without an answer, 1 | 2 |
//! | [`compare_swap`](fn@compare_swap) | [`Words`] | 24 bytes | 8 bytes | 2 | 2 |
//! | [`scan_between`](fn@scan_between), [`scan`] | [`Words`] | 32 bytes | 16 bytes per selected word | 2 for each answer that is full, and 2 | 2, and all words |
//! | [`gather_bytes`](fn@gather_bytes) | [`Bytes`] | 16 bytes per range | the ranges | 2 | 2 n |
//! | [`scatter_bytes`](fn@scatter_bytes) | [`Bytes`] | 16 bytes per range, and the bytes | 8 bytes | 2; sent without an answer, 1 | n, and a flush |
//!
//! Aggregated handles share frames between invocations, so a thousand `fetch_add`s take a few messages.
//!
//! # Order and failures
//!
//! A target runs one invocation after the other, so each of them is atomic for all the others. An index beyond the end fails the
//! invocation, with a message that states both; `scatter` and `scatter_bytes` then have changed nothing.

#![no_std]
#![deny(unsafe_code)]

mod bytes;
mod chain;
mod memory;
mod select;
mod words;

pub use bytes::{Patch, Patches, Range, gather_bytes, scatter_bytes};
pub use chain::{Chase, chase};
pub use memory::{Bytes, Place, Table, Words};
pub use select::{Found, Scan, ScanBetween, scan, scan_between};
pub use words::{CompareSwap, FetchAdd, Store, compare_swap, fetch_add, gather, scatter};
