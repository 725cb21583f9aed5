#![allow(unused)]
use ifunc::prelude::*;

#[derive(Layout)]
#[repr(i32)]
pub enum Error {
    Missing,
    Full,
}

#[ifunc::export]
fn insert() -> Result<(), Error> {
    Err(Error::Full)
}

fn main() {}
