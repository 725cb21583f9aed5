#![allow(unused)]
use ifunc::prelude::*;

#[ifunc(codec = json, speed = 9)]
async unsafe fn everything<T>(payload: &mut u64, target: u64, ctx: Context) -> &'static str {
    "wrong"
}

// The item is still there: no error for its use.
const _: () = {
    let _ = plain;
};

#[ifunc(oops)]
fn plain(payload: u64, target: &mut u64) {}

fn main() {}
