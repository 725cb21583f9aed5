#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
pub fn divide(by: u64, target: &mut u64) -> Result<u64, u32> {
    target.checked_div(by).ok_or(1)
}

fn main() {}
