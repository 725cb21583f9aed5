//! The floors: cache lines that two cores exchange without any protocol. Two threads of one process share
//! memory as two processes do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use super::time_slots;
use crate::cores::spawn_on;
use crate::program::Starter;

/// A cache line and its neighbour, which processors prefetch with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// `BENCH_PEER_CPU` is the other core. `BENCH_LINES` is the number of lines: one that both write in turn, or
/// one per direction.
pub(super) fn run(starter: Starter) -> Result<()> {
    let number = |name: &str| -> Result<usize> {
        std::env::var(name)
            .with_context(|| name.to_owned())?
            .parse()
            .with_context(|| name.to_owned())
    };
    let (peer, lines) = (number("BENCH_PEER_CPU")?, number("BENCH_LINES")?);
    time_slots(starter, |slot| {
        let there = Line::default();
        let back = Line::default();
        // With one line, both directions use it: odd numbers in one direction, even ones in the other.
        let (there, back) = (&there.0, if lines == 1 { &there.0 } else { &back.0 });
        std::thread::scope(|scope| {
            let echo = spawn_on(scope, peer, move || {
                for n in 0..slot.operations {
                    wait_for(there, 2 * n + 1);
                    back.store(2 * n + 2, Ordering::Release);
                }
            })?;
            there.store(1, Ordering::Release);
            wait_for(back, 2);
            let started = Instant::now();
            for n in 1..slot.operations {
                there.store(2 * n + 1, Ordering::Release);
                wait_for(back, 2 * n + 2);
            }
            let took = started.elapsed();
            echo.join()
                .map_err(|_| anyhow::anyhow!("the other thread panicked"))?;
            Ok(took.as_nanos() as f64 / (slot.operations - 1).max(1) as f64 / 2.0)
        })
    })
}

fn wait_for(line: &AtomicU64, value: u64) {
    // The pause instruction saves 10 ns between some pairs of cores and never costs time.
    while line.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}
