#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn nothing() {}

fn main() {}
