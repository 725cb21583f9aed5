#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(idempotant, retries = 3)]
fn typo(payload: u64, target: &mut u64) {}

#[ifunc(name = add)]
fn unquoted(payload: u64, target: &mut u64) {}

fn main() {}
