//! A program that does a slot when it is asked to.

use anyhow::Result;

use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// Told a slot, it answers what came of it.
pub(crate) struct SlotProgram(pub(crate) Program);

impl Side for SlotProgram {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.0.request(&slot)
    }
}
