//! The thread that finds invocations that run for too long.
//!
//! A serving thread counts the passages of its gate (`threads`), for changes of exports. The watchdog reads the counts: an invocation
//! whose count it has seen for as long as the limit is overdue, and its thread gets a signal. So an invocation pays nothing for
//! its deadline, and the clock is read by the watchdog alone.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::prepared::{notify_all, notify_one};
use crate::threads::{ThreadNumber, Threads, in_milliseconds};

/// Bounds of the time between two checks.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(250);

/// The watchdog of an executor. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    is_stopped: Mutex<bool>,
    /// Milliseconds of the shortest limit.
    shortest: AtomicU32,
    changed: Condvar,
}

impl Watchdog {
    /// Starts it. Invocations have this limit, or a shorter one of their own.
    ///
    /// # Errors
    /// The kernel's, for a thread.
    pub(crate) fn start(threads: Arc<Threads>, limit: Duration) -> io::Result<Self> {
        let stop = Arc::new(Stop {
            is_stopped: Mutex::new(false),
            shortest: AtomicU32::new(in_milliseconds(limit)),
            changed: Condvar::new(),
        });
        let begun = Arc::new(Barrier::new(2));
        let builder = std::thread::Builder::new().name("ifunc-watchdog".into());
        let thread = {
            let stop = Arc::clone(&stop);
            let begun = Arc::clone(&begun);
            builder.spawn(move || {
                begun.wait();
                watch(&threads, limit, &stop);
            })?
        };
        // A runner process denies system calls from here on that a thread makes when it begins.
        begun.wait();
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// An invocation has a limit of its own: from now on the watchdog checks often enough for that.
    pub(crate) fn expect(&self, limit: Duration) {
        let milliseconds = in_milliseconds(limit);
        if milliseconds < self.stop.shortest.load(Ordering::Relaxed) {
            let _checking = self
                .stop
                .is_stopped
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.stop.shortest.fetch_min(milliseconds, Ordering::Relaxed);
            self.stop.changed.notify_all();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self
            .stop
            .is_stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An invocation that was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u64,
    /// How many invocations of its run were begun.
    started: u32,
    since: Instant,
    /// Number of signals that its thread got for it.
    signals: u32,
}

impl Seen {
    /// Whether it has run for the limit, now that `started` invocations of its run were begun. The limit is that of one: a run
    /// passes the gate once, and goes on as long as another one begins in that time.
    fn is_overdue(&mut self, started: u32, limit: Duration, now: Instant) -> bool {
        if started != self.started {
            (self.started, self.since) = (started, now);
        }
        now - self.since >= limit
    }
}

fn watch(threads: &Threads, limit: Duration, stop: &Stop) {
    let mut seen = HashMap::<ThreadNumber, Seen>::new();
    let mut is_stopped = stop.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
    while !*is_stopped {
        let now = Instant::now();
        let mut is_lost = false;
        let mut seen_now = HashMap::new();
        threads.each(|number, passages| {
            let Some(count) = passages.within() else { return };
            let known = seen.get(&number).filter(|known| known.count == count);
            let mut known = known.copied().unwrap_or(Seen {
                count,
                started: passages.started(),
                since: now,
                signals: 0,
            });
            let limit = passages.run_time().map_or(limit, |own| own.min(limit));
            if known.is_overdue(passages.started(), limit, now) {
                passages.set_overdue(count);
                // It may run on another thread than the one that it was made for. All threads that are prepared are asked once: a
                // signal interrupts their system calls, and one that blocks it never answers.
                is_lost |= known.signals == 1 && !passages.was_found(count);
                known.signals = known.signals.saturating_add(1);
                notify_one(passages.thread());
            }
            seen_now.insert(number, known);
        });
        seen = seen_now;
        if is_lost {
            notify_all();
        }
        let shortest = Duration::from_millis(stop.shortest.load(Ordering::Relaxed).into());
        let pause = (shortest / 4).clamp(SHORTEST, LONGEST);
        (is_stopped, _) = stop
            .changed
            .wait_timeout(is_stopped, pause)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_ends_with_its_executor() {
        let threads = Arc::new(Threads::new());
        let watchdog = Watchdog::start(Arc::clone(&threads), Duration::from_secs(60)).unwrap();
        assert_eq!(Arc::strong_count(&threads), 2);
        let began = Instant::now();
        drop(watchdog);
        assert_eq!(Arc::strong_count(&threads), 1, "its thread has ended");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn the_limit_is_that_of_each_invocation_of_a_run() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut seen = Seen {
            count: 1,
            started: 1,
            since: began,
            signals: 0,
        };
        let mut after = |tenths: u32, started| seen.is_overdue(started, second, began + second * tenths / 10);
        assert!(!after(9, 1) && after(10, 1), "the first one");
        assert!((2..40).all(|started| !after(9 * started, started)));
        assert!(
            !after(9 * 39 + 9, 39) && after(9 * 39 + 10, 39),
            "one of them does not end"
        );
    }
}
