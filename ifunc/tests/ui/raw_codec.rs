#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(codec = raw)]
fn number(payload: u64, target: &mut u64) {}

#[ifunc(codec = raw)]
fn words(payload: &[u32], target: &mut u64) {}

fn main() {}
