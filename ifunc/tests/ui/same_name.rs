#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn add(delta: u64, target: &mut u64) {}

#[ifunc]
fn add(delta: u32, target: &mut u64) {}

fn main() {}
