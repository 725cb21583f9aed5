#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn raw(payload: *const u8, target: &mut u64) {}

#[ifunc]
fn function(payload: fn(u64) -> u64, target: &mut u64) {}

fn main() {}
