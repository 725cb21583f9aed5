#![allow(unused)]
use ifunc::prelude::*;

use std::collections::HashMap;

#[ifunc::export]
fn owned(key: String, value: Vec<u8>) {}

#[ifunc::export]
fn borrowed(map: &HashMap<u64, u64>, text: &String) {}

#[ifunc::export]
fn shapes(tuple: (u8, u8), array: [u8; 4], option: Option<u8>, pointer: *const u8, callback: fn()) {}

#[ifunc::export]
fn slices(out: &mut str, nested: &&u8) -> &'static [u8] {
    &[]
}

#[ifunc::export]
fn returns(a: &u8) -> Result<&u8, i32> {
    Ok(a)
}

#[ifunc::export]
fn text() -> Result<String, i32> {
    Err(1)
}

fn main() {}
