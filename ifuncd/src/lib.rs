//! The parts of `ifuncd`, a ready-made target.

pub mod audit;
pub mod capability;
pub mod files;
pub mod memory;
pub mod node;
pub mod peer;
mod rate;
pub mod store;
mod system;
