#![allow(unused)]
use ifunc::prelude::*;

pub struct Counter {
    count: u64,
}

#[ifunc]
pub fn add(delta: u64, counter: &mut Counter) {
    counter.count += delta;
}

fn main() {}
