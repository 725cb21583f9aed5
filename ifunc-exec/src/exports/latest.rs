//! The latest change, until no invocation runs that began before it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::threads::{Running, Threads};

/// A change that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Changes are numbered from 1.
    pub(crate) number: u64,
    /// When it began.
    pub(crate) began: Instant,
}

/// The latest change that has not ended. What it replaced may have no owner, and then nothing else waits for its end.
#[derive(Debug, Default)]
pub(crate) struct LatestChange {
    is_pending: AtomicBool,
    pending: Mutex<Option<(Change, Running)>>,
}

impl LatestChange {
    fn lock(&self) -> MutexGuard<'_, Option<(Change, Running)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change was made, and these invocations may not have seen it. Changes of several threads may come in another order.
    pub(super) fn made(&self, change: Change, running: Running) {
        let mut pending = self.lock();
        if pending
            .as_ref()
            .is_none_or(|(before, _)| before.number < change.number)
        {
            *pending = Some((change, running));
            self.is_pending.store(true, Ordering::Relaxed);
        }
    }

    /// The change, once, if it has ended. Cheap if none is pending.
    pub(crate) fn ended(&self, threads: &Threads) -> Option<Change> {
        if !self.is_pending.load(Ordering::Relaxed) {
            return None;
        }
        let mut pending = self.lock();
        let (change, _) = pending.take_if(|(_, running)| {
            threads.remove_ended(running);
            running.is_empty()
        })?;
        self.is_pending.store(false, Ordering::Relaxed);
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_change_with_the_highest_number_is_the_latest() {
        let threads = Threads::new();
        let change = |number| Change {
            number,
            began: Instant::now(),
        };
        for order in [[1, 2], [2, 1]] {
            let latest = LatestChange::default();
            for number in order {
                latest.made(change(number), threads.running().unwrap());
            }
            assert_eq!(latest.ended(&threads).map(|change| change.number), Some(2));
            assert!(latest.ended(&threads).is_none());
        }
    }
}
