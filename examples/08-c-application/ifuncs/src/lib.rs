//! The ifuncs: the one below, and the one in `c/probe.c`. The application is a C program that was compiled with neither.

#![no_std]

use ifunc::prelude::*;

/// Cells of a half.
const CELLS: usize = 512;

/// `struct rod` of `rod.h`.
#[ifunc::layout]
pub struct Rod {
    /// Steps that this half has made.
    pub step: u64,
    /// Temperatures, and those next to this half at both ends.
    pub cell: [f64; CELLS + 2],
}

/// What [`warm()`] does.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct Heat {
    /// The first cell, from 1.
    pub first: u32,
    /// How many cells.
    pub count: u32,
    /// By how much each gets warmer.
    pub degrees: f64,
}

#[ifunc::import]
unsafe extern "C" {
    /// A function of the application.
    safe fn announce(step: u64, degrees: f64);
}

/// Warms cells, and answers before which step it did: the simulation goes on meanwhile. A range that is not in this half is an
/// error that the source gets.
#[ifunc]
pub fn warm(heat: Heat, rod: &mut Rod) -> u64 {
    let (first, count) = (heat.first as usize, heat.count as usize);
    assert!(
        first >= 1 && count <= CELLS && first + count <= CELLS + 1,
        "not in this half"
    );
    for cell in &mut rod.cell[first..first + count] {
        *cell += heat.degrees;
    }
    announce(rod.step, heat.degrees);
    rod.step
}
