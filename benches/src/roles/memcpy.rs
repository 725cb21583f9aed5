//! A copy by one core: a lower bound for every payload that is not read where it was written.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

use super::time_slots;
use crate::program::Starter;

pub(super) fn run(starter: Starter) -> Result<()> {
    time_slots(starter, |slot| {
        let from = vec![1u8; slot.size];
        let mut to = vec![0u8; slot.size];
        let started = Instant::now();
        for _ in 0..slot.operations {
            black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
        }
        Ok(started.elapsed().as_nanos() as f64 / slot.operations as f64)
    })
}
