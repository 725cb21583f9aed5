#![allow(unused)]
use ifunc::prelude::*;

pub struct View<'a>(&'a [u8]);

#[ifunc]
fn view(payload: u64, target: &mut View<'_>) {}

fn main() {}
