//! The ifuncs are in `c/`: `cargo ifunc build` builds one image for each `X_main`. This library is empty until you add
//! an `#[ifunc]` in Rust.

#![no_std]
