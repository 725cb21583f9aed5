//! What travels: the `#[ifunc]` functions below, and the C files in `c/`. `cargo ifunc build` makes one image of each;
//! nothing here is linked into the target.

#![no_std]

use ifunc::prelude::*;

/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 {
    *counter += delta;
    *counter
}
