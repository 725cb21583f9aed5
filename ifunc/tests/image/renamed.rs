//! `sdk = { package = "ifunc", .. }`
//# dependency: sdk

#![no_std]
#![deny(warnings)]

extern crate sdk as ifunc;

use sdk::prelude::*;

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store(sdk::Foreign);

#[sdk::layout]
#[derive(Clone, Copy)]
pub struct Point {
    x: f64,
    y: f64,
}

#[sdk::import]
unsafe extern "C" {
    safe fn put(store: &mut Store, point: &Point) -> Result<(), i32>;
}

#[ifunc]
pub fn keep(point: &Point, store: &mut Store) -> i32 {
    put(store, point).err().unwrap_or_default()
}

#[sdk::export]
pub fn sum(point: &Point) -> f64 {
    point.x + point.y
}
