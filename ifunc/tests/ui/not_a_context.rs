#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn two_payloads(a: u64, target: &mut u64, b: u64) {}

#[ifunc]
fn shared_context(a: u64, target: &mut u64, ctx: &Context) {}

fn main() {}
