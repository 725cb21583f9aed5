#![allow(unused)]
use ifunc::prelude::*;

pub struct Point {
    x: f64,
}

// A borrow inside of a part that is copied.
#[ifunc]
pub fn find((name, unit): (&str, Option<&str>), target: &mut u64) {}

#[ifunc]
pub fn rename(name: Option<&str>, target: &mut u64) {}

#[ifunc]
pub fn clear((count, bytes): (u64, &mut [u8]), target: &mut u64) {}

// A part of which both sides do not know the same.
#[ifunc]
pub fn place((name, at): (&str, Point), target: &mut u64) {}

// More parts than there may be.
#[ifunc]
pub fn many(values: (&str, u8, u8, u8, u8, u8, u8), target: &mut u64) -> (u8, u8, u8, u8, u8, u8, u8) {
    (0, 1, 2, 3, 4, 5, 6)
}

// These may travel as they are.
#[ifunc]
pub fn above((name, limit): (&str, f64), target: &mut u64) {}

#[ifunc]
pub fn range((low, name, (high, step), values): (f64, &str, (f64, Option<u8>), &[u16]), target: &mut u64) {}

fn main() {}
