#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(codec = bincode)]
fn other(payload: u64, target: &mut u64) {}

fn main() {}
