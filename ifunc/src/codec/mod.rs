//! The codecs: how values become the bytes of a payload or an answer. Each is a type that names it in
//! [`Payload`](crate::Payload) and [`Answer`](crate::Answer); an ifunc chooses by `#[ifunc(codec = ...)]`.
//!
//! | `codec =` | payload parameter | what travels | decoding |
//! |---|---|---|---|
//! | `zerocopy` (default) | `T` ([`Zerocopy`]), `&T` and `&[T]` ([`InPlace`]) of a [`Portable`](crate::Portable) layout | its bytes | checked; copied out, or used in place, aligned |
//! | `postcard` | a serde type, borrowing or not | postcard | borrows from the payload |
//! | `raw` (default for `&[u8]` and `&str`) | `&[u8]`, `&str` | the bytes | none; UTF-8 checked |
//! | `custom` | a type with a [`Payload`](crate::Payload) of its own | what that writes | what that reads |
//!
//! Answers: `postcard` with `codec = postcard`; `raw` for `Vec<u8>` and `String`; `zerocopy` otherwise.

mod postcard;
mod raw;
mod zerocopy;

/// Fixed layouts, taken by value.
#[derive(Debug)]
pub enum Zerocopy {}

/// Fixed layouts, taken by reference: `&T` and `&[T]` point into the payload.
#[derive(Debug)]
pub enum InPlace {}

/// serde types, by postcard.
#[derive(Debug)]
pub enum Postcard {}

/// Bytes and strings as they are.
#[derive(Debug)]
pub enum Raw {}

/// A [`Payload`](crate::Payload) written by hand.
#[derive(Debug)]
pub enum Custom {}
