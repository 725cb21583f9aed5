//! Single operations, timed by the processor's own counter: a clock of the system costs as much as a cache line's way.

use std::time::Duration;

use hdrhistogram::Histogram;

/// When each operation began.
pub(crate) struct Ticks(Vec<u64>);

/// More are not kept: the slot is long enough.
const MOST: u64 = 1 << 20;

impl Ticks {
    pub(crate) fn with_room_for(operations: u64) -> Self {
        // Written to, so that the kernel gives the memory now.
        let mut times = vec![1; operations.min(MOST) as usize];
        times.clear();
        Self(times)
    }

    /// An operation begins now.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.0.len() < self.0.capacity() {
            self.0.push(now());
        }
    }

    /// 50th, 99th and 99.9th percentile of the time from one tick to the next, in nanoseconds. `took` is the time from the first
    /// tick to this call. `None`: there are too few.
    pub(crate) fn percentiles(self, took: Duration) -> Option<[f64; 3]> {
        let [first, _, ..] = self.0[..] else {
            return None;
        };
        let end = now();
        let nanoseconds = took.as_nanos() as f64 / (end - first).max(1) as f64;
        let mut histogram = Histogram::<u64>::new(3).expect("3 digits are possible");
        let cost = cost();
        for pair in self.0.windows(2) {
            // It grows as needed, so that nothing is refused.
            let _ = histogram.record((pair[1] - pair[0]).saturating_sub(cost));
        }
        let at = |part| histogram.value_at_quantile(part) as f64 * nanoseconds;
        Some([0.5, 0.99, 0.999].map(at))
    }
}

/// What a tick costs, which is a part of every operation.
fn cost() -> u64 {
    let mut ticks = Ticks::with_room_for(1001);
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
    // SAFETY: every x86-64 processor has it.
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
    fn ticks_are_of_the_time_that_passed() {
        let mut ticks = Ticks::with_room_for(5);
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
