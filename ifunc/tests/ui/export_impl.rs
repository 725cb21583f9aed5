#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::interface]
pub trait Kv {
    fn put(&mut self, key: &[u8]);
}

struct Store;

#[ifunc::export]
impl Store {
    fn put(&mut self, key: &[u8]) {}
}

struct Generic<T>(T);

#[ifunc::export]
impl<T> Kv for Generic<T> {
    fn put(&mut self, key: &[u8]) {}
}

struct Borrows<'a>(&'a u8);

#[ifunc::export]
impl<'a> Kv for Borrows<'a> {
    fn put(&mut self, key: &[u8]) {}
}

#[ifunc::export(name = "kv")]
impl Kv for Store {
    fn put(&mut self, key: &[u8]) {}
}

#[ifunc::export]
mod exports {}

fn main() {}
