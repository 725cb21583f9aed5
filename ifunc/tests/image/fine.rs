//! No errors, and no warnings about the cfgs of image builds.

#![no_std]
#![deny(warnings)]
#![forbid(unsafe_code)]

use ifunc::prelude::*;

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store(ifunc::Foreign);

#[derive(Layout)]
#[repr(C)]
pub struct State {
    counter: u64,
}

#[ifunc]
pub fn bytes<'a>(payload: &'a [u8], target: &'a mut State, ctx: &'a mut Context<'_>) {
    target.counter += payload.len() as u64;
    ctx.answer(payload);
}

#[ifunc(idempotent)]
pub fn word(payload: &str, _: &Store) -> u64 {
    payload.len() as u64
}

#[ifunc::export]
pub fn larger<'a>(a: &'a u64, b: Option<&'a u64>) -> &'a u64 {
    b.filter(|b| *b > a).unwrap_or(a)
}
