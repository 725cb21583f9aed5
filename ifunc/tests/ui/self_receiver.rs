#![allow(unused)]
use ifunc::prelude::*;

struct Counter;

impl Counter {
    #[ifunc]
    fn add(&mut self, delta: u64) {}
}

fn main() {}
