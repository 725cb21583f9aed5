//! Opaque types that safe code could construct, or through which it could access the host's memory.
//# error: only the host can access the contents of `Fields` and construct one
//# error: only the host can access the contents of `Makeable` and construct one
//# error: `Beside` has fields beside its `ifunc::Foreign`
//# error: `Aligned` has fields beside its `ifunc::Foreign`

#![no_std]

use ifunc::prelude::*;

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Fields {
    pub x: u64,
    pub y: [u64; 1024],
}

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Makeable(());

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Beside {
    pub foreign: ifunc::Foreign,
    pub x: u64,
}

#[derive(Opaque)]
#[opaque("store/1")]
pub struct Aligned(ifunc::Foreign, [u64; 0]);
