#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn slice(payload: [u8], target: &mut u64) {}

fn main() {}
