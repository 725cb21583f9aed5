//! What several tests of the linker need.

#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod loaded;
pub mod sources;
