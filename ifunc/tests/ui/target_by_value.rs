#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn owns(payload: u64, target: u64) {}

fn main() {}
