#![allow(unused)]
use ifunc::prelude::*;

pub trait Kv {
    fn put(&mut self, key: &[u8]);
}

#[ifunc]
pub fn not_an_interface(key: u64, kv: &mut dyn Kv) {}

fn main() {}
