//! Helpers that several tests of the linker share.

#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod emulated;
pub mod loaded;
pub mod plan;
pub mod sources;
