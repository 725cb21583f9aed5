//! The linker, by sources that compilers of this machine compile. One program, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod debug_object;
mod entries;
mod link;
mod mutations;
mod refused;
