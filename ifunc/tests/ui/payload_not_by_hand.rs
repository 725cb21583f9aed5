#![allow(unused)]
use ifunc::prelude::*;

pub struct Packed<'a>(&'a [u8]);

#[ifunc(codec = custom)]
pub fn unpack(packed: Packed<'_>, target: &mut u64) {}

fn main() {}
