#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::layout]
pub struct Padded {
    small: u8,
    large: u64,
}

fn main() {}
