//! The runtime between processes, and images in the process of their test: what needs no program of its own.
//!
//! One program, which is linked once. Those beside it run again over other transports, or between hosts: `xtask` starts them by name.

#[path = "../common/mod.rs"]
mod common;

mod aggregation;
mod answers;
mod build_script;
mod contained;
mod debugging;
mod fixture;
mod interfaces;
mod nowhere_else;
mod ops;
mod own_worker;
mod process;
mod sizes;
mod slices;
mod stats;
