#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn lonely(payload: u64) -> u64 {
    payload
}

fn main() {}
