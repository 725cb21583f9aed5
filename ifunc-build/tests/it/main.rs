//! Builds of packages and of C files. One program, which is linked once.

extern crate alloc;

#[path = "../common/mod.rs"]
mod common;

mod c_files;
mod c_helpers;
mod corpus;
mod cross;
mod entries;
mod header;
mod packages;
mod refusals;
mod settings;
mod slices;
mod std_chains;
