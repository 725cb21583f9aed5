#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn forever(payload: u64, target: &mut u64) -> ! {
    loop {}
}

fn main() {}
