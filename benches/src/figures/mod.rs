//! The figures: one file per figure, or per family of similar figures.

mod c_interface;
mod calls;
mod code_every_frame;
mod dropin;
mod first_arrival;
mod floors;
mod host_call;
mod instructions;
mod irregular;
pub(crate) mod kv;
mod networks;
mod peers;
mod perftest;
mod process;
mod scale;
mod settings;
mod shm;
mod slices;
mod trust;

use anyhow::Result;

use crate::Bench;

/// A figure.
pub(crate) struct Figure {
    /// Its id in the results.
    pub(crate) id: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    pub(crate) run: fn(&mut Bench) -> Result<()>,
}

/// All figures, in the order of measurement.
pub(crate) const FIGURES: &[Figure] = &[
    floors::FIGURE,
    shm::FLOOR,
    shm::LATENCY,
    shm::RATE,
    shm::INCREMENT,
    irregular::AGGREGATE,
    irregular::UPDATES,
    irregular::READS,
    perftest::FIGURE,
    code_every_frame::FIGURE,
    dropin::FIGURE,
    first_arrival::FIGURE,
    host_call::FIGURE,
    instructions::FIGURE,
    networks::LATENCY,
    networks::RATE,
    networks::SHARED_MEMORY,
    networks::PUTS,
    calls::FIGURE,
    c_interface::FIGURE,
    peers::FIGURE,
    scale::FIGURE,
    kv::FIGURE,
    trust::FIGURE,
    process::FIGURE,
    slices::FIGURE,
];
