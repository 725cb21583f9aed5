#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn echo(payload: &[u8], target: &mut u64) -> &[u8] {
    payload
}

#[ifunc(codec = postcard)]
fn first<'a>(payload: &'a str, target: &mut u64) -> Option<&'a str> {
    Some(payload)
}

fn main() {}
