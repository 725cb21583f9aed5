#![allow(unused)]
use std::sync::{Mutex, atomic::AtomicU64};

#[ifunc::export]
static NAMES: Vec<String> = Vec::new();

#[ifunc::export]
static LOCKED: Mutex<u64> = Mutex::new(0);

#[ifunc::export]
static NAME: &str = "name";

#[ifunc::export]
static CALL: fn() = main;

#[ifunc::import]
unsafe extern "C" {
    safe static mut LAST: u64;
    safe static HITS: AtomicU64;
    #[link_name = "HITS"]
    safe static AGAIN: AtomicU64;
}

fn main() {}
