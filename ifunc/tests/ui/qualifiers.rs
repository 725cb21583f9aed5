#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
unsafe fn risky(payload: u64, target: &mut u64) {}

#[ifunc]
extern "C" fn foreign(payload: u64, target: &mut u64) {}

#[ifunc]
const fn constant(payload: u64, target: &mut u64) {}

fn main() {}
