#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn takes(payload: impl Copy, target: &mut u64) {}

#[ifunc]
fn returns(payload: u64, target: &mut u64) -> impl Copy {
    payload
}

fn main() {}
