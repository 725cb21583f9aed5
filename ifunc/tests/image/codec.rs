//! A payload that cannot travel is one error.
//# error: the bytes of `Rust` cannot travel

#![no_std]

use ifunc::prelude::*;

pub struct Rust(pub u64);

#[ifunc]
pub fn takes(payload: Rust, counter: &mut u64) {
    *counter += payload.0;
}
