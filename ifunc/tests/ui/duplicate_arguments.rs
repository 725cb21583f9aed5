#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(name = "a", idempotent, name = "b", idempotent)]
fn twice(payload: u64, target: &mut u64) {}

fn main() {}
