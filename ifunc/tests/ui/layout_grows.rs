#![allow(unused)]
use ifunc::prelude::*;

#[derive(Layout)]
#[repr(i32)]
#[non_exhaustive]
pub enum WithoutOther {
    Full = 1,
}

#[derive(Layout)]
#[repr(i32)]
#[non_exhaustive]
pub enum Renumbered {
    Full = 1,
    Busy,
    #[layout(other)]
    Other = -1,
}

#[derive(Layout)]
#[repr(i32)]
pub enum Closed {
    Full = 1,
    #[layout(other)]
    Other = -1,
}

#[derive(Layout)]
#[repr(i32)]
#[non_exhaustive]
pub enum Twice {
    #[layout(other)]
    Full = 1,
    #[layout(other)]
    Other = -1,
    #[layout(unknown)]
    Unknown = -2,
}

#[derive(Layout)]
#[repr(u8)]
#[layout(grows)]
pub enum Growing {
    Full = 1,
}

#[derive(Layout)]
#[repr(C)]
#[layout(shrinks)]
pub struct Shrinking(u64);

fn main() {}
