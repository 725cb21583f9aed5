#![allow(unused)]
use ifunc::prelude::*;

mod hex {}

#[derive(Shape)]
pub struct Hidden {
    #[serde(with = "hex")]
    key: u64,
    #[serde(flatten)]
    rest: u64,
    #[serde(skip)]
    local: std::time::Duration,
    when: std::time::Duration,
}

#[derive(Shape)]
pub union Either {
    a: u32,
    b: f32,
}

fn main() {}
