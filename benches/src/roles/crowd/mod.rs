//! Many sources and one target, or one source and many targets: each source sends to all targets in turn, as many messages as
//! it can from one moment to another.

use std::time::Duration;

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::Fresh;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::pair::Count;
use crate::program::Starter;

pub(super) mod ifunc;
pub(super) mod ucx;

/// What a source is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// To send, from a moment of the monotonic clock to another, in nanoseconds. Answered by [`Sent`].
    Send { from: u64, until: u64, size: usize },
    /// To say what the targets have received in all, if it can. Answered by their [`Count`]s.
    Report,
}

/// What a source has sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// To each target.
    pub(crate) each: Vec<Count>,
    /// When all of it was there, as far as it knows, by the monotonic clock.
    pub(crate) finished: u64,
}

/// What a target of UCX's has received.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) count: Count,
    /// When the last one came.
    pub(crate) finished: u64,
}

/// The monotonic clock, which is one for all processes.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Rounds between two looks at the clock.
const ROUND: u64 = 16;

/// Who sends.
trait Sender {
    /// Sends to a target what [`Fresh`] writes.
    fn send(&mut self, target: usize, fresh: &Fresh) -> Result<()>;

    /// Waits until all of it is there, as far as this side can know.
    fn finish(&mut self) -> Result<()>;

    /// What the targets have received, as they say.
    fn received(&mut self) -> Result<Vec<Count>>;
}

/// Sends as the starter says. Others send at the same time: the seed tells its payloads from theirs.
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
                        seed: (own | sent.messages).wrapping_mul(0xd6e8_feb8_6659_fd93),
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

/// Where the targets are.
fn targets(starter: &mut Starter) -> Result<Vec<String>> {
    starter.next()?.context("nobody says where the targets are")
}
