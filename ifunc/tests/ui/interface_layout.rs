#![allow(unused)]
use ifunc::prelude::*;

struct Plain {
    x: u64,
}

enum Answer {
    Yes,
}

#[ifunc::interface]
trait Kv {
    fn by_value(&self, plain: Plain);
    fn returned(&self) -> Option<Plain>;
    fn error(&self) -> Result<(), Answer>;
    fn elements(&self, plain: &[Plain]);
}

fn main() {}
