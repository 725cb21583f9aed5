#![allow(unused)]
use ifunc::prelude::*;

#[derive(Clone, Copy)]
pub struct Point {
    x: f64,
    y: f64,
}

#[ifunc]
pub fn plot(point: Point, target: &mut u64) {}

#[ifunc]
pub fn pair(pair: (u32, u32), target: &mut u64) {}

fn main() {}
