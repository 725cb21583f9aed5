#![allow(unused)]
use ifunc::prelude::*;

#[derive(Opaque)]
pub struct Unnamed(ifunc::Foreign);

#[derive(Opaque)]
#[opaque("store 1")]
pub struct Blank(ifunc::Foreign);

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Makeable;

#[derive(Opaque)]
#[opaque("store/1")]
pub enum Void {}

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Generic<T>(T);

fn main() {}
