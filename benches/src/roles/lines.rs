//! The floors: cache lines that two cores send each other, with nothing around them. Two threads of one process: memory is as
//! shared as between two processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cores::pin;
use crate::program::Starter;
use crate::slots::{Sample, Slot};

/// A line of its own, and its neighbour's, which processors fetch with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// `BENCH_PEER_CPU` is the other core; `BENCH_LINES` how many lines: one that both write in turn, or one per direction.
pub(super) fn run(mut starter: Starter) -> Result<()> {
    let number = |name: &str| -> Result<usize> {
        std::env::var(name)
            .with_context(|| name.to_owned())?
            .parse()
            .with_context(|| name.to_owned())
    };
    let (peer, lines) = (number("BENCH_PEER_CPU")?, number("BENCH_LINES")?);
    while let Some(slot) = starter.next::<Slot>()? {
        let there = Line::default();
        let back = Line::default();
        // With one line, the way back is the way there: odd numbers go one way, even ones the other.
        let (there, back) = (&there.0, if lines == 1 { &there.0 } else { &back.0 });
        // The other thread sleeps until it is on its core, and this one until then: who spins may not be made to wait.
        let (pinned, is_pinned) = channel();
        let ns = std::thread::scope(|scope| {
            let echo = scope.spawn(move || -> Result<()> {
                let pin = pin(peer);
                let failed = pin.is_err();
                let _ = pinned.send(pin);
                if failed {
                    return Ok(());
                }
                for n in 0..slot.operations {
                    wait_for(there, 2 * n + 1);
                    back.store(2 * n + 2, Ordering::Release);
                }
                Ok(())
            });
            is_pinned.recv()??;
            there.store(1, Ordering::Release);
            wait_for(back, 2);
            let started = Instant::now();
            for n in 1..slot.operations {
                there.store(2 * n + 1, Ordering::Release);
                wait_for(back, 2 * n + 2);
            }
            let took = started.elapsed();
            echo.join()
                .map_err(|_| anyhow::anyhow!("the other thread panicked"))??;
            anyhow::Ok(took.as_nanos() as f64 / (slot.operations - 1).max(1) as f64 / 2.0)
        })?;
        starter.reply(&Sample {
            ns,
            percentiles: None,
        })?;
    }
    Ok(())
}

fn wait_for(line: &AtomicU64, value: u64) {
    // With a pause: without it, it was 10 ns longer between two cores, and never shorter.
    while line.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}
