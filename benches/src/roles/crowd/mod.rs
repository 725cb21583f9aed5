//! Many sources and one target, or one source and many targets: each source sends to all targets in turn, as
//! many messages as it can between two points in time.

use std::time::Duration;

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::Fresh;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::pair::Count;
use crate::program::Starter;
use crate::slots::seed;

pub(super) mod ifunc;
pub(super) mod ucx;

/// A request to a source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Send between two points of the monotonic clock, in nanoseconds. It replies with [`Sent`].
    Send { from: u64, until: u64, size: usize },
    /// Report what the targets have received in total, if it can. It replies with their [`Count`]s.
    Report,
}

/// What a source has sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Counts per target.
    pub(crate) each: Vec<Count>,
    /// Time of the monotonic clock at which all of it had arrived, as far as the source knows.
    pub(crate) finished: u64,
}

/// What a UCX target has received.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) count: Count,
    /// Arrival time of the last message.
    pub(crate) finished: u64,
}

/// The monotonic clock, which all processes share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Rounds between two clock readings.
const ROUND: u64 = 16;

/// A sender.
trait Sender {
    /// Sends the bytes of [`Fresh`] to a target.
    fn send(&mut self, target: usize, fresh: &Fresh) -> Result<()>;

    /// Waits until all of it has arrived, as far as this side can know.
    fn finish(&mut self) -> Result<()>;

    /// What the targets have received, by their own count.
    fn received(&mut self) -> Result<Vec<Count>>;
}

/// Sends as requested. Senders use different seeds, so their payloads differ.
fn send(mut starter: Starter, targets: usize, mut sender: impl Sender) -> Result<()> {
    let own = u64::from(std::process::id()) << 32;
    let mut each = vec![Count::default(); targets];
    while let Some(order) = starter.next::<Order>()? {
        let Order::Send { from, until, size } = order else {
            starter.reply(&sender.received()?)?;
            continue;
        };
        each.fill(Count::default());
        std::thread::sleep(Duration::from_nanos(from.saturating_sub(now())));
        while now() < until {
            for _ in 0..ROUND {
                for (target, sent) in each.iter_mut().enumerate() {
                    let fresh = Fresh {
                        len: size,
                        seed: seed(own | sent.messages),
                    };
                    sender.send(target, &fresh)?;
                    sent.messages += 1;
                    sent.sum = sent.sum.wrapping_add(fresh.sum());
                }
            }
        }
        sender.finish()?;
        starter.reply(&Sent {
            each: each.clone(),
            finished: now(),
        })?;
    }
    Ok(())
}

/// The addresses of the targets.
fn targets(starter: &mut Starter) -> Result<Vec<String>> {
    starter.next()?.context("no request with the targets' addresses")
}
