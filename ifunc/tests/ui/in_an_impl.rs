#![allow(unused)]
use ifunc::prelude::*;

struct Counter;

impl Counter {
    /// Without `self`.
    #[ifunc]
    pub fn add(delta: u64, counter: &mut u64) -> u64 {
        *counter += delta;
        *counter
    }

    #[ifunc::export]
    fn limit() -> u64 {
        7
    }
}

trait Reset {
    #[ifunc(idempotent)]
    fn reset(_: (), counter: &mut u64) {
        *counter = 0;
    }

    #[ifunc]
    fn declared(_: (), counter: &mut u64);
}

// These are none.
mod nested {
    use ifunc::prelude::*;

    #[ifunc]
    pub fn subtract(delta: u64, counter: &mut u64) {
        *counter -= delta;
    }
}

fn main() {
    // The function is still there.
    Counter::add(1, &mut 2);
}
