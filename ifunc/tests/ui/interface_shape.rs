#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::interface]
trait Generic<T> {
    fn put(&mut self, value: &T);
}

#[ifunc::interface]
trait Inherits: Send {
    fn put(&mut self);
}

#[ifunc::interface]
unsafe trait Unsafe {
    fn put(&mut self);
}

#[ifunc::interface]
trait Items {
    type Key;
    const LIMIT: usize;
    fn put(&mut self);
}

#[ifunc::interface]
trait Empty {}

#[ifunc::interface(version = 2)]
trait Versioned {
    fn put(&mut self);
}

#[ifunc::interface(name = "kv-2")]
trait Named {
    fn put(&mut self);
}

#[ifunc::interface]
struct NoTrait;

fn main() {}
