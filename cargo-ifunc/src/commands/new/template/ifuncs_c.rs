//! What travels is in `c/`: `cargo ifunc build` makes one image of each `X_main` there. This library is empty until you
//! write an `#[ifunc]` in Rust beside them.

#![no_std]
