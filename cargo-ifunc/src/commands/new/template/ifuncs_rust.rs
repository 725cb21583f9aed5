//! What travels. `cargo ifunc build` makes one image of each `#[ifunc]`; nothing here is linked into the target.

#![no_std]

use ifunc::prelude::*;

/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 {
    *counter += delta;
    *counter
}
