//! The ifuncs: the two functions below, and the one in `c/multiply.c`. The target links none of them.

#![no_std]

use ifunc::prelude::*;

#[ifunc::import]
unsafe extern "C" {
    /// A function of the target. An ifunc may call what the target exports, and nothing else.
    safe fn announce(what: &str, value: u64);
}

/// Adds `delta` to the target's counter and answers the new value.
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 {
    *counter += delta;
    *counter
}

/// Makes the target print its counter.
#[ifunc]
pub fn report(what: &str, counter: &u64) {
    announce(what, *counter);
}
