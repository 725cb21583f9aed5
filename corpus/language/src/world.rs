//! The ifunc by which the driver reads the target's data between two cases.

use alloc::vec::Vec;

use corpus_case::World;
use ifunc::prelude::*;

/// Answers the state that the last case left, and resets the world.
#[ifunc]
pub fn take_world(_input: &[u8], world: &mut World) -> Vec<u8> {
    world.take()
}
