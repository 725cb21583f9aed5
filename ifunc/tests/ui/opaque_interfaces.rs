#![allow(unused)]
use ifunc::prelude::*;

#[derive(Opaque)]
#[opaque(interfaces)]
pub struct Store(ifunc::Foreign);

#[derive(Opaque)]
#[opaque(interface)]
pub struct Misspelled(u64);

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Generic<T>(T);

fn main() {}
