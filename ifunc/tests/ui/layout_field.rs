#![allow(unused)]
use ifunc::prelude::*;

#[derive(Layout)]
#[repr(C)]
pub struct Named {
    id: u64,
    name: String,
}

fn main() {}
