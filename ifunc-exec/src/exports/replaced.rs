//! Versions of exports that were replaced, until no invocation uses them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::symbols::Guard;
use crate::threads::{Running, Threads};

/// Versions that invocations may still use.
#[derive(Debug, Default)]
pub(crate) struct ReplacedVersions {
    waiting: Mutex<Vec<Replaced>>,
    /// Number of guards that wait.
    count: AtomicUsize,
}

/// What one change replaced.
#[derive(Debug)]
struct Replaced {
    guards: Vec<Guard>,
    /// The invocations that may use it; `None`: their end cannot be observed.
    running: Option<Running>,
}

impl ReplacedVersions {
    fn lock(&self) -> MutexGuard<'_, Vec<Replaced>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `guards` until `running` has ended; `None`: as long as the target lives.
    pub(super) fn keep(&self, guards: Vec<Guard>, running: Option<Running>) {
        let mut waiting = self.lock();
        self.count.fetch_add(guards.len(), Ordering::Relaxed);
        waiting.push(Replaced { guards, running });
    }

    /// Drops what no invocation uses any more.
    pub(crate) fn collect(&self, threads: &Threads) {
        if self.len() == 0 {
            return;
        }
        let has_ended = |replaced: &mut Replaced| {
            replaced.running.as_mut().is_some_and(|running| {
                threads.remove_ended(running);
                running.is_empty()
            })
        };
        let mut waiting = self.lock();
        let ended: Vec<_> = waiting.extract_if(.., has_ended).collect();
        let guards = ended.iter().map(|replaced| replaced.guards.len()).sum();
        self.count.fetch_sub(guards, Ordering::Relaxed);
        drop(waiting);
        // Without the lock: what the guards drop may be the host's.
        drop(ended);
    }

    /// Number of guards that wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
