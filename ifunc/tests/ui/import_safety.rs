#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::import]
unsafe extern {
    fn dangerous(key: u64);
}

fn calls() {
    dangerous(1);
}

fn main() {}
