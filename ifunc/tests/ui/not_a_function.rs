#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
pub struct Add {
    delta: u64,
}

#[ifunc::export]
pub struct Insert;

#[ifunc::import]
fn insert(key: &[u8]) {}

fn main() {}
