//! The bodies of the fuzz targets: functions that take the bytes of a stranger and panic when a promise is broken.
//!
//! Each has a program in `fuzz_targets`, which `cargo xtask fuzz` (or `cargo fuzz run TARGET`) builds with libFuzzer, and a corpus of
//! inputs that reach different code in `corpus`. `src/bin/seeds.rs` writes the first inputs, of what the project itself sends.

pub mod address;
pub mod batch;
pub mod call;
pub mod codec;
pub mod connection;
pub mod dropin;
pub mod frame;
pub mod hello;
pub mod image;
pub mod install;
pub mod link;
pub mod policy;
pub mod relocate;
pub mod stats;
pub mod tls;
pub mod travel;
