#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::import]
extern "C" {
    fn unvouched(key: u64);
}

#[ifunc::import]
unsafe extern "system" {
    safe fn windows(key: u64);
}

#[ifunc::import(from = "host")]
unsafe extern {
    static COUNTER: u64;
    type Store;
    safe fn twice(key: u64);
    #[link_name = "twice"]
    safe fn again(key: u64);
    safe fn generic<T>(value: T);
    fn printf(format: &str, ...);
}

fn main() {}
