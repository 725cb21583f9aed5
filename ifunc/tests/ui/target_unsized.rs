#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn slice(payload: u64, target: &mut [u64]) {}

#[ifunc]
fn text(payload: u64, target: &str) {}

fn main() {}
