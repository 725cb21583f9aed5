#![allow(unused)]
use ifunc::prelude::*;

#[ifunc]
fn object(payload: &dyn core::fmt::Debug, target: &mut dyn core::fmt::Debug) {}

fn main() {}
