#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
async fn later(payload: u64, target: &mut u64) {}

fn main() {}
