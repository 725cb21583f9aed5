#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(name = "insert-v2")]
fn dash(payload: u64, target: &mut u64) {}

#[ifunc(name = "")]
fn empty(payload: u64, target: &mut u64) {}

#[ifunc]
fn größe(payload: u64, target: &mut u64) {}

#[ifunc]
fn __ifunc_panic(payload: u64, target: &mut u64) {}

fn main() {}
