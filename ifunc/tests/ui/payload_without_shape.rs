#![allow(unused)]
use ifunc::prelude::*;

#[derive(ifunc::serde::Serialize, ifunc::serde::Deserialize)]
#[serde(crate = "ifunc::serde")]
pub struct Record {
    key: u64,
}

#[ifunc(codec = postcard)]
pub fn insert(record: Record, target: &mut u64) {}

fn main() {}
