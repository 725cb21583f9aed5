//! A copy by one core: a lower bound for every payload that is not read where it was written.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

use crate::program::Starter;
use crate::slots::{Sample, Slot};

pub(super) fn run(mut starter: Starter) -> Result<()> {
    while let Some(slot) = starter.next::<Slot>()? {
        let from = vec![1u8; slot.size];
        let mut to = vec![0u8; slot.size];
        let started = Instant::now();
        for _ in 0..slot.operations {
            black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
        }
        let took = started.elapsed();
        starter.reply(&Sample {
            ns: took.as_nanos() as f64 / slot.operations as f64,
            percentiles: None,
        })?;
    }
    Ok(())
}
