#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn scribble(payload: &mut [u8], target: &mut u64) {}

fn main() {}
