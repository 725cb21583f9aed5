//! How the driver looks at the target's data between two cases.

use alloc::vec::Vec;

use corpus_case::World;
use ifunc::prelude::*;

/// Answers what the last case left behind, and puts the world back as it was.
#[ifunc]
pub fn take_world(_input: &[u8], world: &mut World) -> Vec<u8> {
    world.take()
}
