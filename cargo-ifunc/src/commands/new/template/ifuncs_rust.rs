//! The ifuncs. `cargo ifunc build` builds one image for each `#[ifunc]`; the target links none of them.

#![no_std]

use ifunc::prelude::*;

/// The target's data. This crate knows its name; the host has the fields, and the functions below.
#[derive(Opaque)]
#[opaque("{{name}}/1")]
pub struct Counter(ifunc::Foreign);

// Functions of the host that ifuncs may call: `#[ifunc::export]` in `host/src/lib.rs`.
#[ifunc::import]
unsafe extern "C" {
    /// Adds to the counter and returns its value.
    safe fn counter_add(counter: &mut Counter, delta: u64) -> u64;
}

/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut Counter) -> u64 {
    counter_add(counter, delta)
}
