//! The UCX ifunc interface, from Rust and from C. One program, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod corrupted;
mod messages;
mod programs;
