//! Two sides in turn: a slot of ours, a slot of the peer's, and again. What disturbs the machine disturbs both.

use anyhow::{Result, ensure};
use ifunc_bench_ifuncs::Fresh;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// What a slot is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    /// How many operations. [`take_turns`] says so.
    pub(crate) operations: u64,
    /// Bytes of payload.
    pub(crate) size: usize,
    pub(crate) payload: Payload,
    /// Whether single operations are timed, for percentiles: it costs some nanoseconds of each.
    pub(crate) timed: bool,
}

/// What becomes of a payload on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// The source writes every byte anew, the target reads every byte.
    Fresh,
    /// The source sends what it wrote once, the target reads every byte.
    Static,
    /// The source sends what it wrote once, and nobody reads it: what other benchmarks do, for comparison with them.
    Untouched,
}

impl Payload {
    /// The sum of a payload that was written with this seed; `written` is that of what was written once.
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

/// What came of a slot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Nanoseconds per operation.
    pub(crate) ns: f64,
    /// 50th, 99th and 99.9th percentile of single operations in nanoseconds, where each was timed.
    pub(crate) percentiles: Option<[f64; 3]>,
}

/// One of those that take turns.
pub(crate) trait Side {
    /// Does it, and checks that everything arrived as it was sent.
    ///
    /// # Errors
    /// Something did not arrive, or the program ended.
    fn slot(&mut self, slot: Slot) -> Result<Sample>;
}

/// What a side did, slot by slot.
#[derive(Clone, Debug)]
pub(crate) struct Series(Vec<Sample>);

impl Series {
    /// Median of the slots, in nanoseconds per operation.
    pub(crate) fn median(&self) -> f64 {
        median(self.0.iter().map(|sample| sample.ns).collect())
    }

    /// Quartiles of the slots ÷ their median: how steady it was.
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

    /// Ours ÷ another's, slot by slot: the median, and the quartiles.
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

/// Lets all sides take turns, as often as is planned. `slot.operations` is overwritten: each side does as many as it can in a
/// slot's time, after it has warmed up.
pub(crate) fn take_turns<const N: usize>(
    plan: &Plan,
    slot: Slot,
    mut sides: [&mut dyn Side; N],
) -> Result<[Series; N]> {
    let mut series = take_turns_all(plan, slot, &mut sides)?.into_iter();
    Ok(std::array::from_fn(|_| {
        series.next().expect("there is one for each side")
    }))
}

/// As [`take_turns`], of any number.
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

/// Finds how many operations last a slot's time.
fn warm_up(plan: &Plan, mut slot: Slot, side: &mut dyn Side) -> Result<Slot> {
    let wanted = plan.slot.as_nanos() as f64;
    slot.operations = 16;
    loop {
        let ns = side.slot(slot)?.ns;
        ensure!(ns > 0.0, "a slot took no time");
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

/// Between the two nearest values.
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
    fn quantiles_lie_between_values() {
        let values = vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(values.clone()), 2.5);
        assert_eq!(quantile(values.clone(), 0.0), 1.0);
        assert_eq!(quantile(values, 1.0), 4.0);
        assert_eq!(median(vec![7.0]), 7.0);
    }

    #[test]
    fn ratios_are_of_neighbours() {
        let series = |all: [f64; 3]| {
            Series(
                all.map(|ns| Sample {
                    ns,
                    percentiles: None,
                })
                .to_vec(),
            )
        };
        // The machine was three times slower in the last turn, for both.
        let (ratio, [low, high]) = series([10.0, 20.0, 60.0]).ratio(&series([20.0, 40.0, 120.0]));
        assert_eq!((ratio, low, high), (0.5, 0.5, 0.5));
    }
}
