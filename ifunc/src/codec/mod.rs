//! The codecs, which turn values into the bytes of a payload or an answer. A codec is a marker type that
//! selects an implementation of [`Payload`](crate::Payload) or [`Answer`](crate::Answer); an ifunc chooses it
//! by `#[ifunc(codec = ...)]`.
//!
//! | `codec =` | payload parameter | bytes | decoding |
//! |---|---|---|---|
//! | `zerocopy` (default) | `T` ([`Zerocopy`]), `&T` and `&[T]` ([`InPlace`]) of a [`Portable`](crate::Portable) layout | the value's own | validates, then copies, or borrows the aligned bytes |
//! | `postcard` | a serde type, borrowing or not | postcard's encoding | borrows from the payload |
//! | `raw` (default for `&[u8]` and `&str`) | `&[u8]`, `&str` | the bytes | borrows; `&str` validates UTF-8 |
//! | `zerocopy` | tuples, `Option` and `Vec` of fixed layouts ([`Fixed`]) | the values, one after the other | validates, then copies |
//! | `zerocopy` | `(&str, &[T], &U, f64)`: up to 6 parts, of which some are borrowed ([`Parts`]) | lengths and parts | validates, then borrows or copies |
//! | `custom` | a type with a hand-written [`Payload`](crate::Payload) | its own | its own |
//!
//! Answers: `postcard` with `codec = postcard`; `raw` for `Vec<u8>` and `String`; `zerocopy` otherwise. `#[ifunc(answer = ...)]` chooses
//! another codec for the answer than for the payload:
//!
//! ```
//! use ifunc::prelude::*;
//!
//! /// Two borrowed parts and a number in, a value by serde out.
//! #[ifunc(answer = postcard)]
//! pub fn above((name, values, least): (&str, &[f64], f64), limit: &mut f64) -> Option<(char, u64)> {
//!     let count = values.iter().filter(|value| **value > least.max(*limit)).count();
//!     name.chars().next().map(|first| (first, count as u64))
//! }
//!
//! /// Without a serialiser: the bytes of a tuple are those of its fields.
//! #[ifunc]
//! pub fn range((low, high): (f64, f64), limit: &mut f64) -> (bool, Option<f64>) {
//!     *limit = low.max(*limit);
//!     (*limit < high, (*limit < high).then_some(*limit))
//! }
//! # fn main() {}
//! ```

mod fixed;
mod parts;
mod postcard;
mod raw;
mod zerocopy;

use core::marker::PhantomData;

pub use fixed::FixedValue;
pub use parts::{Part, TuplePart};

/// Values of fixed layout, passed by value.
#[derive(Debug)]
pub enum Zerocopy {}

/// Values of fixed layout, passed by reference: `&T` and `&[T]` point into the payload.
#[derive(Debug)]
pub enum InPlace {}

/// Tuples, `Option` and `Vec` of fixed layouts.
#[derive(Debug)]
pub enum Fixed {}

/// Tuples with borrowed parts. `K` is a tuple, too, which says of each part whether it is [`Borrowed`] or [`Copied`]: the attribute writes
/// it from the parameter's type.
#[derive(Debug)]
pub struct Parts<K>(PhantomData<K>);

/// A part that points into the payload: `&str`, `&T` and `&[T]` of fixed layouts.
#[derive(Debug)]
pub enum Borrowed {}

/// A part that is copied out of the payload: what [`Fixed`] writes.
#[derive(Debug)]
pub enum Copied {}

/// serde types, encoded by postcard.
#[derive(Debug)]
pub enum Postcard {}

/// Bytes and strings, unencoded.
#[derive(Debug)]
pub enum Raw {}

/// A hand-written [`Payload`](crate::Payload).
#[derive(Debug)]
pub enum Custom {}
