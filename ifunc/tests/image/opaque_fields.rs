//! Types that stand for the host's, and would let safe code reach into its memory or make one.
//# error: only the host can look inside of `Fields` and make one
//# error: only the host can look inside of `Makeable` and make one
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
