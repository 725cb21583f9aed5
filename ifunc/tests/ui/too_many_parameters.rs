#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn crowded(a: u64, target: &mut u64, ctx: &mut Context, b: u64) {}

fn main() {}
