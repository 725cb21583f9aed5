//! The ifuncs. `cargo ifunc build` builds one image for each `#[ifunc]`; the target links none of them.

#![no_std]

use ifunc::prelude::*;

/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 {
    *counter += delta;
    *counter
}
