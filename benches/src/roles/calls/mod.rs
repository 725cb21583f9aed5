//! Calls: a question of eight bytes, and its answer of eight. Each question is another number, and each answer is checked.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::program::Starter;
use crate::slots::Sample;

pub(super) mod ifunc;
#[cfg(feature = "tonic")]
pub(super) mod tonic;
pub(super) mod ucx;

/// What a slot of calls is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// How many.
    pub(crate) operations: u64,
    /// At most so many without their answer.
    pub(crate) in_flight: usize,
}

impl Calls {
    /// How many a source makes in all.
    pub(crate) fn all(&self) -> u64 {
        WAKING + self.operations + self.timed()
    }

    fn timed(&self) -> u64 {
        if self.in_flight == 1 {
            self.operations.div_ceil(TIMED)
        } else {
            0
        }
    }
}

/// So many at first, by which whoever sleeps wakes up, on both sides.
const WAKING: u64 = 8;
/// One part in so many of a slot's calls is made once more, and each timed: to look at the clock costs a few percent of the
/// fastest.
const TIMED: u64 = 8;

/// Who makes calls.
trait Caller {
    /// Makes a call with each of these numbers, and has seen all answers when it returns.
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()>;
}

/// Makes calls as the starter says.
fn call(mut starter: Starter, mut caller: impl Caller) -> Result<()> {
    let mut next = 0;
    let mut numbers = move |n| {
        next += n;
        next - n..next
    };
    while let Some(slot) = starter.next::<Calls>()? {
        caller.calls(numbers(WAKING), 1)?;
        let started = Instant::now();
        caller.calls(numbers(slot.operations), slot.in_flight)?;
        let ns = started.elapsed().as_nanos() as f64 / slot.operations as f64;
        let mut percentiles = None;
        if slot.in_flight == 1 {
            let mut histogram = Histogram::<u64>::new(3)?;
            for number in numbers(slot.timed()) {
                let started = Instant::now();
                caller.calls(number..number + 1, 1)?;
                histogram.record(started.elapsed().as_nanos() as u64)?;
            }
            percentiles = Some([0.5, 0.99, 0.999].map(|part| histogram.value_at_quantile(part) as f64));
        }
        starter.reply(&Sample { ns, percentiles })?;
    }
    Ok(())
}
