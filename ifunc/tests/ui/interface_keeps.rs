#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::interface]
pub trait Kv {
    fn get(&self, key: &[u8]) -> Option<&[u8]>;
    fn put(&mut self, key: &[u8]);
}

#[ifunc]
pub fn keeps_a_borrow(key: &[u8], kv: &mut dyn Kv) {
    let value = kv.get(key);
    kv.put(key);
    drop(value);
}

#[ifunc]
pub fn writes(key: &[u8], kv: &dyn Kv) {
    kv.put(key);
}

fn main() {}
