#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::interface]
pub trait Kv {
    fn put(&mut self, key: &[u8]);
}

#[ifunc]
pub fn owned(key: u64, kv: Box<dyn Kv>) {}

#[ifunc]
pub fn bounded(key: u64, kv: &mut (dyn Kv + Send)) {}

#[ifunc]
pub fn implemented(key: u64, kv: &mut impl Kv) {}

#[ifunc]
pub fn payload(kv: &dyn Kv, target: &mut u64) {}

fn main() {}
