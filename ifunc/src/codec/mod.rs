//! The codecs, which turn values into the bytes of a payload or an answer. A codec is a marker type that
//! selects an implementation of [`Payload`](crate::Payload) or [`Answer`](crate::Answer); an ifunc chooses it
//! by `#[ifunc(codec = ...)]`.
//!
//! | `codec =` | payload parameter | bytes | decoding |
//! |---|---|---|---|
//! | `zerocopy` (default) | `T` ([`Zerocopy`]), `&T` and `&[T]` ([`InPlace`]) of a [`Portable`](crate::Portable) layout | the value's own | validates, then copies, or borrows the aligned bytes |
//! | `postcard` | a serde type, borrowing or not | postcard's encoding | borrows from the payload |
//! | `raw` (default for `&[u8]` and `&str`) | `&[u8]`, `&str` | the bytes | borrows; `&str` validates UTF-8 |
//! | `custom` | a type with a hand-written [`Payload`](crate::Payload) | its own | its own |
//!
//! Answers: `postcard` with `codec = postcard`; `raw` for `Vec<u8>` and `String`; `zerocopy` otherwise.

mod postcard;
mod raw;
mod zerocopy;

/// Values of fixed layout, passed by value.
#[derive(Debug)]
pub enum Zerocopy {}

/// Values of fixed layout, passed by reference: `&T` and `&[T]` point into the payload.
#[derive(Debug)]
pub enum InPlace {}

/// serde types, encoded by postcard.
#[derive(Debug)]
pub enum Postcard {}

/// Bytes and strings, unencoded.
#[derive(Debug)]
pub enum Raw {}

/// A hand-written [`Payload`](crate::Payload).
#[derive(Debug)]
pub enum Custom {}
