#![allow(unused)]
use ifunc::prelude::*;

#[derive(Layout)]
pub struct Unfixed {
    a: u8,
    b: u64,
}

#[derive(Layout)]
#[repr(C)]
pub struct Borrows<'a> {
    text: &'a str,
}

#[derive(Layout)]
#[repr(u8)]
pub enum Tagged {
    None,
    Some(u8),
}

#[derive(Layout)]
pub enum Unsized {
    A,
    B,
}

#[derive(Layout)]
#[repr(C)]
pub union Either {
    a: u32,
    b: f32,
}

#[derive(Layout)]
#[repr(u8)]
pub enum Nothing {}

fn main() {}
