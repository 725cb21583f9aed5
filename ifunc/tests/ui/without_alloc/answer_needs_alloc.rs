#![allow(unused)]
use ifunc::prelude::*;

extern crate alloc;

#[ifunc]
pub fn text(n: u64, target: &mut u64) -> alloc::string::String {
    alloc::string::String::new()
}

fn main() {}
