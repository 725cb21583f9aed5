#![allow(unused)]
use ifunc::prelude::*;

use core::cell::Cell;

#[derive(Opaque)]
#[opaque("cell/1")]
pub struct Shared(Cell<u64>);

#[ifunc]
pub fn count(payload: u64, target: &Shared) {}

fn main() {}
