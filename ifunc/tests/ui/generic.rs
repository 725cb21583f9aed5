#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn generic<T>(payload: u64, target: &mut u64) {}

#[ifunc]
fn sized<const N: usize>(payload: [u8; N], target: &mut u64) {}

#[ifunc]
fn bounded(payload: u64, target: &mut u64)
where
    u64: Copy,
{
}

fn main() {}
