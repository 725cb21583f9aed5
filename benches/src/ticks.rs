//! Times of single operations, from the processor's time stamp counter: reading a system clock takes as long
//! as moving a cache line.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The start of each operation.
pub(crate) struct Ticks(Vec<u64>);

/// Largest number of ticks kept.
const MOST: u64 = 1 << 20;

impl Ticks {
    pub(crate) fn with_capacity(operations: u64) -> Self {
        // Writes to the memory, so that the kernel allocates it now.
        let mut times = vec![1; operations.min(MOST) as usize];
        times.clear();
        Self(times)
    }

    /// Records the start of an operation.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.0.len() < self.0.capacity() {
            self.0.push(now());
        }
    }

    /// 50th, 99th and 99.9th percentile of the time between ticks, in nanoseconds. `took` is the time from
    /// the first tick to this call. `None` if there are too few ticks.
    pub(crate) fn percentiles(self, took: Duration) -> Option<[f64; 3]> {
        let [first, _, ..] = self.0[..] else {
            return None;
        };
        let end = now();
        let nanoseconds = took.as_nanos() as f64 / (end - first).max(1) as f64;
        let mut histogram = Histogram::<u64>::new(3).expect("3 digits are possible");
        let cost = cost();
        for pair in self.0.windows(2) {
            // The histogram grows as needed, so recording cannot fail.
            let _ = histogram.record((pair[1] - pair[0]).saturating_sub(cost));
        }
        let at = |part| histogram.value_at_quantile(part) as f64 * nanoseconds;
        Some([0.5, 0.99, 0.999].map(at))
    }
}

/// The duration of a tick, which is part of every operation.
fn cost() -> u64 {
    let mut ticks = Ticks::with_capacity(1001);
    for _ in 0..1001 {
        ticks.tick();
    }
    let mut costs: Vec<u64> = ticks.0.windows(2).map(|pair| pair[1] - pair[0]).collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn now() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn ticks_measure_elapsed_time() {
        let mut ticks = Ticks::with_capacity(5);
        let started = Instant::now();
        for _ in 0..5 {
            ticks.tick();
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = started.elapsed();
        let [median, ..] = ticks.percentiles(took).unwrap();
        assert!(
            (2e6..=took.as_nanos() as f64).contains(&median),
            "{median} ns of {took:?}"
        );
    }
}
