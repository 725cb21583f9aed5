//! Alternating slots of ours and of the peer, so that a disturbance of the machine affects both.

use anyhow::{Result, ensure};
use ifunc_bench_ifuncs::Fresh;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// A slot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    /// Number of operations; [`take_turns`] sets it.
    pub(crate) operations: u64,
    /// Payload size in bytes.
    pub(crate) size: usize,
    pub(crate) payload: Payload,
    /// Whether single operations are timed, for percentiles; this costs some nanoseconds of each.
    pub(crate) timed: bool,
}

/// The use of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// The source writes every byte anew, the target reads every byte.
    Fresh,
    /// The source writes the payload once, the target reads every byte.
    Static,
    /// The source writes the payload once, and the target does not read it: for comparison with other
    /// benchmarks.
    Untouched,
}

impl Payload {
    /// The sum of a payload written with this seed; `written` is that of a payload written once.
    #[inline]
    pub(crate) fn sum(self, size: usize, seed: u64, written: u64) -> u64 {
        match self {
            Self::Fresh => Fresh { len: size, seed }.sum(),
            Self::Static | Self::Untouched => written,
        }
    }
}

impl Slot {
    pub(crate) fn new(size: usize, payload: Payload) -> Self {
        Self {
            operations: 0,
            size,
            payload,
            timed: false,
        }
    }
}

/// The seed of the payload of the message with this number.
#[inline]
pub(crate) fn seed(number: u64) -> u64 {
    number.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The result of a slot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Nanoseconds per operation.
    pub(crate) ns: f64,
    /// 50th, 99th and 99.9th percentile of single operations in nanoseconds, if they were timed.
    pub(crate) percentiles: Option<[f64; 3]>,
}

/// A side that alternates with others.
pub(crate) trait Side {
    /// Runs a slot, and checks that everything arrived as sent.
    ///
    /// # Errors
    /// Something did not arrive, or the program ended.
    fn slot(&mut self, slot: Slot) -> Result<Sample>;
}

/// The results of a side, slot by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Sample>);

impl Series {
    /// Adds the slots of another one after its own.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Median of the slots, in nanoseconds per operation.
    pub(crate) fn median(&self) -> f64 {
        median(self.0.iter().map(|sample| sample.ns).collect())
    }

    /// Quartiles of the slots relative to their median.
    pub(crate) fn spread(&self) -> [f64; 2] {
        let all: Vec<f64> = self.0.iter().map(|sample| sample.ns).collect();
        [0.25, 0.75].map(|part| quantile(all.clone(), part) / self.median())
    }

    /// Median of the slots, in operations per second.
    pub(crate) fn per_second(&self) -> f64 {
        1e9 / self.median()
    }

    /// Medians of the slots' percentiles.
    pub(crate) fn percentiles(&self) -> Option<[f64; 3]> {
        let all: Vec<[f64; 3]> = self.0.iter().filter_map(|sample| sample.percentiles).collect();
        (!all.is_empty()).then(|| std::array::from_fn(|i| median(all.iter().map(|each| each[i]).collect())))
    }

    /// The ratios of this series to another one, slot by slot: median and quartiles.
    pub(crate) fn ratio(&self, other: &Self) -> (f64, [f64; 2]) {
        let ratios: Vec<f64> = self
            .0
            .iter()
            .zip(&other.0)
            .map(|(ours, peer)| ours.ns / peer.ns)
            .collect();
        let at = |part: f64| quantile(ratios.clone(), part);
        (at(0.5), [at(0.25), at(0.75)])
    }
}

/// Lets all sides alternate, as often as planned. It overwrites `slot.operations`: after a warm-up, each side
/// runs as many operations as fit into a slot's time.
pub(crate) fn take_turns<const N: usize>(
    plan: &Plan,
    slot: Slot,
    mut sides: [&mut dyn Side; N],
) -> Result<[Series; N]> {
    let mut series = take_turns_all(plan, slot, &mut sides)?.into_iter();
    Ok(std::array::from_fn(|_| {
        series.next().expect("one series per side")
    }))
}

/// As [`take_turns`], for any number of sides.
pub(crate) fn take_turns_all(plan: &Plan, slot: Slot, sides: &mut [&mut dyn Side]) -> Result<Vec<Series>> {
    let slots: Vec<Slot> = sides
        .iter_mut()
        .map(|side| warm_up(plan, slot, *side))
        .collect::<Result<_>>()?;
    let mut series = vec![Series(Vec::new()); sides.len()];
    for _ in 0..plan.repetitions {
        for ((side, slot), series) in sides.iter_mut().zip(&slots).zip(&mut series) {
            series.0.push(side.slot(*slot)?);
        }
    }
    Ok(series)
}

/// Operations after which a slot must have taken time.
const MOST_IN_NO_TIME: u64 = 4096;

/// Determines the number of operations in a slot's time.
fn warm_up(plan: &Plan, mut slot: Slot, side: &mut dyn Side) -> Result<Slot> {
    let wanted = plan.slot.as_nanos() as f64;
    slot.operations = 16;
    loop {
        let ns = side.slot(slot)?.ns;
        // The difference of two medians, of a few operations each on a busy machine, may be less than nothing.
        ensure!(
            ns > 0.0 || slot.operations < MOST_IN_NO_TIME,
            "a slot took no time"
        );
        let took = ns * slot.operations as f64;
        if took > wanted / 4.0 {
            slot.operations = ((wanted / ns) as u64).max(1);
            return Ok(slot);
        }
        slot.operations *= 4;
    }
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// Interpolates between the two nearest values.
pub(crate) fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = part * (values.len() - 1) as f64;
    let (low, high) = (values[at as usize], values[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let values = vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(values.clone()), 2.5);
        assert_eq!(quantile(values.clone(), 0.0), 1.0);
        assert_eq!(quantile(values, 1.0), 4.0);
        assert_eq!(median(vec![7.0]), 7.0);
    }

    #[test]
    fn ratios_compare_consecutive_slots() {
        let series = |all: [f64; 3]| {
            Series(
                all.map(|ns| Sample {
                    ns,
                    percentiles: None,
                })
                .to_vec(),
            )
        };
        // The machine was three times slower in the last slot, for both.
        let (ratio, [low, high]) = series([10.0, 20.0, 60.0]).ratio(&series([20.0, 40.0, 120.0]));
        assert_eq!((ratio, low, high), (0.5, 0.5, 0.5));
    }
}
