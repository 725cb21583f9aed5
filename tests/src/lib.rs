//! What the targets of the end-to-end tests own and export, and what their drivers share.

use ifunc::prelude::*;

pub mod faults;
pub mod role;

/// What these targets own.
#[derive(Debug, Default, Layout)]
#[repr(C)]
pub struct State {
    /// Changed by ifuncs.
    pub counter: u64,
    /// How many of them did.
    pub changes: u64,
}

/// The length of a word, if it is a word.
#[ifunc::export]
pub fn lookup(word: &str) -> Option<u64> {
    word.chars().all(char::is_alphabetic).then_some(word.len() as u64)
}

/// Sleeps.
#[ifunc::export]
pub fn take_a_while(milliseconds: u64) {
    println!("taking {milliseconds} ms");
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// Panics.
#[ifunc::export]
pub fn host_panics(why: &str) {
    panic!("{why}");
}

/// Says something on the target's standard output.
#[ifunc::export]
pub fn announce(what: &str, value: u64) {
    println!("{what}: {value}");
}
