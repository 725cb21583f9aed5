#![allow(unused)]
use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

#[ifunc]
pub fn leak(payload: &'static [u8], target: &'static mut u64) {}

#[derive(Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Record<'a>(&'a str);

#[ifunc(codec = postcard)]
fn record(record: Record<'static>, target: &mut u64) {}

#[ifunc]
fn context(payload: u64, target: &mut u64, ctx: &mut Context<'static>) {}

#[ifunc]
fn bounded<'a: 'static>(payload: &'a [u8], target: &mut u64) {}

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Store(Vec<&'static [u8]>);

#[ifunc::export]
pub fn keep<'a: 'static>(s: &'a mut Store, x: &'a [u8]) {
    s.0.push(x);
}

#[ifunc::export]
fn maybe<'a, 'b: 'a>(a: &'a u64, b: Option<&'static u64>) -> &'static u64 {
    &0
}

#[ifunc::import]
unsafe extern "C" {
    safe fn forever(bytes: &'static [u8]);
}

fn main() {}
