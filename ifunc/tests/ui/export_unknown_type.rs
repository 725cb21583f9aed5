#![allow(unused)]
use ifunc::prelude::*;

#[derive(Clone, Copy)]
pub struct Plain(u64);

#[ifunc::export]
fn by_value(plain: Plain) {}

#[ifunc::export]
fn by_reference(plain: &Plain) {}

#[ifunc::export]
fn failing() -> Result<(), Plain> {
    Ok(())
}

fn main() {}
