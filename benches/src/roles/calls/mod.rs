//! Calls: a question of eight bytes, and its answer of eight. Each question is a different number, and each
//! answer is checked.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub(crate) use c::Compiled;

use crate::program::Starter;
use crate::slots::Sample;

pub(super) mod c;
pub(super) mod ifunc;
#[cfg(feature = "tonic")]
pub(super) mod tonic;
pub(super) mod ucx;

/// A slot of calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// Number of calls.
    pub(crate) operations: u64,
    /// Largest number of calls in flight.
    pub(crate) in_flight: usize,
}

impl Calls {
    /// Total number of calls that a source makes.
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

/// Number of initial calls, which wake both sides.
const WAKING: u64 = 8;
/// One call in this many is repeated with a clock reading, because that costs a few percent of the fastest
/// calls.
const TIMED: u64 = 8;

/// A program that makes calls.
trait Caller {
    /// Makes a call with each number; returns after the last answer.
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()>;
}

/// Makes calls as requested.
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
