#![allow(unused)]
use ifunc::prelude::*;

struct Host;

impl Host {
    #[ifunc::export]
    fn method(&self) {}
}

#[ifunc::export]
fn generic<T: Copy>(value: T) {}

#[ifunc::export]
async fn later() {}

#[ifunc::export]
extern "C" fn c() {}

#[ifunc::export(name = "not a symbol")]
fn named() {}

#[ifunc::export(version = 2)]
fn versioned() {}

fn main() {}
