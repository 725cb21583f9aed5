#![allow(unused)]
use ifunc::prelude::*;

mod ifuncs {
    #[ifunc::import]
    unsafe extern "C" {
        pub safe fn lookup(word: &[u8]) -> u64;
        pub safe fn score(word: &str) -> u64;
    }
}

#[ifunc::export(import = ifuncs::lookup)]
fn lookup(word: &str) -> Option<u64> {
    None
}

#[ifunc::export(import = ifuncs::score)]
fn score(word: &str) -> u64 {
    0
}

#[ifunc::export(import = "ifuncs::score", version = 2)]
fn quoted() {}

fn main() {}
