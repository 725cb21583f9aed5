#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::layout]
#[repr(C, align(128))]
pub struct Wide {
    bytes: [u8; 128],
}

#[ifunc]
pub fn wide(payload: &Wide, target: &mut u64) {}

fn main() {}
