//! One connection between two processes, for both roles, without I/O.
//!
//! A connection sends and receives [frames](ifunc_abi::frame) over a [`Link`](link::Link) that its caller gives to each
//! method. It opens no socket, starts no thread, takes no lock and reads no clock: the same bytes and calls produce the
//! same result, so a simulator can drive it.

#![forbid(unsafe_code)]

pub mod link;
