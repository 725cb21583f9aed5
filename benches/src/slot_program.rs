//! A program that runs slots on request.

use anyhow::Result;

use crate::program::Program;
use crate::slots::{Sample, Side, Slot};

/// Receives a slot and replies with its sample.
pub(crate) struct SlotProgram(pub(crate) Program);

impl Side for SlotProgram {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        self.0.request(&slot)
    }
}
