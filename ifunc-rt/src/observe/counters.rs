//! The counters of a connection: of invocations a load, an addition and a store each, because one thread at a time polls a
//! connection; of what is rare under a lock. A snapshot adds them up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifunc_abi::stats::{Counts, DurationHistogram, IfuncCounts, Timing};

use super::IfuncKey;

/// A count that one thread at a time adds to, and that any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a connection counts apart from invocations.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    /// Frames that ran no image, batches among them.
    pub(crate) other_frames: Counter,
    /// What is rare: installs, failures, and stalls.
    rare: Mutex<Counts>,
    pub(super) stalled: AtomicBool,
}

impl LinkCounters {
    /// The counts that are rare enough for a lock.
    pub(crate) fn rare(&self) -> MutexGuard<'_, Counts> {
        locked(&self.rare)
    }

    /// Whether its next frame has to wait.
    pub(crate) fn stalled(&self, now: bool) {
        if now && !self.stalled.load(Relaxed) {
            self.rare().stalls += 1;
        }
        self.stalled.store(now, Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.rare().clone();
        counts.frames = self.other_frames.get();
        counts
    }
}

/// What a connection counts of the image that a handle is bound to, in one cache line that only its thread writes.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct HandleCounters {
    /// Invocations.
    hits: Counter,
    payload_bytes: Counter,
    answer_bytes: Counter,
    failed: Counter,
    /// Invocations that came in batches.
    batched: Counter,
    /// The number of the next invocation that is timed.
    next_timed: Counter,
    /// How many invocations of a batch run in one crossing of the call gate.
    together: Counter,
    timing: Timing,
    times: Arc<SharedTimes>,
    /// Installs of the image that the handle was bound to already.
    installs: Counter,
    pub(super) key: IfuncKey,
}

/// When invocations are sampled, the first so many of a handle are timed, and then one in so many.
const SAMPLE: u64 = 64;

/// How long one crossing of the call gate may take, if each of its invocations takes as long as the last one that was timed. Other
/// connections of the thread wait meanwhile.
const CROSSING_TIME: Duration = Duration::from_micros(100);
/// How many invocations run in one crossing at least.
const MIN_TOGETHER: u64 = 64;

impl HandleCounters {
    pub(super) fn new(key: IfuncKey, times: Arc<SharedTimes>, timing: Timing) -> Self {
        let (next_timed, together) = (Counter::default(), Counter::default());
        if timing == Timing::Off {
            next_timed.add(u64::MAX);
            together.add(u64::MAX);
        }
        Self {
            hits: Counter::default(),
            payload_bytes: Counter::default(),
            answer_bytes: Counter::default(),
            failed: Counter::default(),
            batched: Counter::default(),
            next_timed,
            together,
            timing,
            times,
            installs: Counter::default(),
            key,
        }
    }

    /// Whether the next invocation is to be timed.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.hits.get() >= self.next_timed.get()
    }

    /// An invocation ended with an answer, of this length if a caller waits for it.
    #[inline]
    pub(crate) fn executed(&self, payload: usize, answer: Option<usize>) {
        self.hits.add(1);
        self.payload_bytes.add(payload as u64);
        if let Some(answer) = answer {
            self.answer_bytes.add(answer as u64);
        }
    }

    /// How many of `count` invocations of a run come next in one crossing of the call gate; 0: the next one is timed.
    #[inline]
    pub(crate) fn together(&self, count: usize) -> usize {
        if self.is_due() {
            return 0;
        }
        usize::try_from(self.together.get()).map_or(count, |together| together.min(count))
    }

    /// How many invocations are timed one after another, if the next one is.
    pub(crate) fn timed(&self) -> usize {
        let all = match self.timing {
            Timing::All => SAMPLE,
            _ => SAMPLE.saturating_sub(self.hits.get()).max(1),
        };
        all as usize
    }

    /// `count` invocations of a run ended with answers, which have so many bytes together. Each payload has `payload` bytes.
    /// They ran in one crossing of the call gate, and count as one invocation before the next one that is timed.
    pub(crate) fn executed_together(&self, count: usize, payload: usize, answers: usize) {
        self.hits.add(count as u64);
        self.payload_bytes.add((count * payload) as u64);
        self.answer_bytes.add(answers as u64);
        if self.timing == Timing::Sampled {
            self.next_timed.add((count as u64).saturating_sub(1));
        }
    }

    /// An invocation failed.
    pub(crate) fn failed(&self, payload: usize) {
        self.executed(payload, None);
        self.failed.add(1);
    }

    /// The image was installed once more.
    pub(super) fn installed_again(&self) {
        self.installs.add(1);
    }

    /// `count` invocations are no frames of their own.
    #[inline]
    pub(crate) fn batched(&self, count: usize) {
        self.batched.add(count as u64);
    }

    /// Frames that were invocations.
    pub(super) fn frames(&self) -> u64 {
        self.hits.get().saturating_sub(self.batched.get())
    }

    /// Records the duration of an invocation. Called before that is counted.
    #[cold]
    pub(crate) fn time(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        locked(&self.times).record(took);
        let together = (CROSSING_TIME.as_nanos() as u64 / took.max(1)).max(MIN_TOGETHER);
        self.together.add(together.wrapping_sub(self.together.get()));
        let next = match self.timing {
            Timing::Sampled if self.hits.get() + 1 >= SAMPLE => SAMPLE,
            _ => 1,
        };
        self.next_timed
            .add(self.hits.get() + next - self.next_timed.get());
    }

    /// Without the times, which belong to the image, and the first install, which `Metrics` counts.
    pub(super) fn counts(&self) -> IfuncCounts {
        IfuncCounts {
            hits: self.hits.get(),
            failed: self.failed.get(),
            payload_bytes: self.payload_bytes.get(),
            answer_bytes: self.answer_bytes.get(),
            installs: self.installs.get(),
            ..IfuncCounts::default()
        }
    }
}

/// The durations of an image's invocations, of all connections and threads: few are timed, so they can share.
pub(super) type SharedTimes = Mutex<DurationHistogram>;

/// Counts stay usable after a panic.
pub(super) fn locked<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IfuncKey = IfuncKey {
        id: [0; 32],
        entry: 0,
    };

    fn timed(timing: Timing, invocations: u64) -> u64 {
        let times = Arc::new(SharedTimes::default());
        let counters = HandleCounters::new(KEY, times.clone(), timing);
        for _ in 0..invocations {
            if counters.is_due() {
                counters.time(Duration::from_nanos(7));
            }
            counters.executed(3, Some(0));
        }
        assert_eq!(counters.counts().hits, invocations);
        let times = times.lock().unwrap();
        assert_eq!(times.sum_ns, 7 * times.count());
        times.count()
    }

    #[test]
    fn fast_invocations_share_a_crossing_that_counts_as_one() {
        let counters = HandleCounters::new(KEY, Arc::default(), Timing::Sampled);
        for _ in 0..SAMPLE {
            assert_eq!(counters.together(1000), 0);
            counters.time(Duration::from_nanos(200));
            counters.executed(8, Some(0));
        }
        for _ in 1..SAMPLE {
            assert_eq!(counters.together(1000), 500);
            assert_eq!(counters.together(300), 300);
            counters.executed_together(300, 8, 0);
        }
        assert_eq!(counters.together(300), 0);
        counters.time(Duration::from_millis(1));
        counters.executed(8, Some(0));
        assert_eq!(counters.together(1000), MIN_TOGETHER as usize);
        let counts = counters.counts();
        assert_eq!(counts.hits, SAMPLE + 63 * 300 + 1);
        let untimed = HandleCounters::new(KEY, Arc::default(), Timing::Off);
        untimed.executed_together(3, 8, 0);
        assert_eq!(untimed.together(7), 7);
    }

    #[test]
    fn the_first_are_timed_and_then_one_of_many() {
        assert_eq!(timed(Timing::Sampled, 1), 1);
        assert_eq!(timed(Timing::Sampled, 64), 64);
        assert_eq!(timed(Timing::Sampled, 127), 64);
        assert_eq!(timed(Timing::Sampled, 128), 65);
        assert_eq!(timed(Timing::Sampled, 6400), 64 + 99);
        assert_eq!(timed(Timing::All, 1000), 1000);
        assert_eq!(timed(Timing::Off, 1000), 0);
    }
}
